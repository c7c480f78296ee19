"""Minimal wheels; a wheel is a zip archive."""

from __future__ import annotations

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
