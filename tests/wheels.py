"""Wheels, which are zip archives: minimal ones, and those of installed packages."""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def wheel(
    folder: Path, name: str, version: str, *, requires: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> Path:
    """Write a wheel with one module, ``name``, that defines ``VERSION``; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = {
        **(files or {f"{name}.py": f"VERSION = {version!r}\n"}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in sorted(content.items()):
            archive.writestr(zipfile.ZipInfo(place), text)
    return path


def installed(folder: Path, name: str) -> Path:
    """Pack a package of this environment, as it is, into a wheel again; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    found = importlib.metadata.distribution(name)
    tags = [
        line.removeprefix("Tag: ").split("-")
        for line in (found.read_text("WHEEL") or "").splitlines()
        if "Tag: " in line
    ]
    path = folder / f"{name}-{found.version}-{tags[0][0]}-{tags[0][1]}-{'.'.join(tag[2] for tag in tags)}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                archive.write(str(found.locate_file(file)), str(file))
    return path
