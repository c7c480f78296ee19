"""Which files of a folder of wheels are packages: their content says so, not only their names."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ENDINGS: Final = (".whl", ".tar.gz", ".zip")
MEMBERS_READ: Final = 20_000  # of a source archive, which has its metadata among them
_SOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*-[0-9][A-Za-z0-9._+!]*\.(tar\.gz|zip)")
_WHEEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]*-[A-Za-z0-9._+!]+(-[A-Za-z0-9._]+){3,4}\.whl")
_METADATA: Final = frozenset({"PKG-INFO", "pyproject.toml", "setup.py"})  # one is in each source archive's folder


def is_package(path: Path) -> bool:
    """Whether a file is a wheel, or an archive of a package's source.

    Raises:
        OSError: it cannot be read.
    """
    try:
        if path.name.endswith(".whl"):
            return bool(_WHEEL.fullmatch(path.name)) and any(map(_is_metadata, _zipped(path)))
        names = _zipped(path) if path.name.endswith(".zip") else _packed(path)
        return bool(_SOURCE.fullmatch(path.name)) and any(map(_is_source, names))
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError):
        return False


def _is_metadata(name: str) -> bool:
    """Whether it is a wheel's own file: ``name-version.dist-info/METADATA``."""
    folder, _, file = name.partition("/")
    return folder.endswith(".dist-info") and file == "METADATA"


def _is_source(name: str) -> bool:
    """Whether it is a file like ``name-version/PKG-INFO``."""
    return name.removeprefix("./").partition("/")[2] in _METADATA


def _zipped(path: Path) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        yield from archive.namelist()


def _packed(path: Path) -> Iterator[str]:
    with tarfile.open(path, "r|gz") as archive:  # as a stream: no member is kept
        for number, member in enumerate(archive):
            if number == MEMBERS_READ:
                return
            yield member.name
