"""The files that a path, a glob or a folder of ``send`` names; hidden ones have to be named themselves."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from kitctl.base.errors import Problem, SpecError


def matches(folder: Path, pattern: str, field: str) -> Iterator[Path]:
    """The files and links that a pattern names.

    Raises:
        SpecError: there are none, or it is not a pattern below the folder.
    """
    below(folder, pattern, field)
    hidden = [part for part in Path(pattern).parts if part.startswith(".")]
    try:
        paths = sorted(folder.glob(pattern)) if Path(pattern).parts else [folder]
    except ValueError as error:
        raise wrong(field, f"{pattern!r} is not a pattern: {error}", "write it like lib, *.txt or **/*.py") from error
    files = [file for path in paths for file in _files(path) if _named(file.relative_to(folder), hidden)]
    if not files:
        what = f"{pattern} matches nothing in {folder}, or only hidden files"
        raise wrong(field, what, "give a path from this folder; name hidden files themselves, as in .env")
    yield from files


def below(folder: Path, path: str, field: str) -> Path:
    """The path in the folder.

    Raises:
        SpecError: it leads out of the folder.
    """
    if not path or "\0" in path or Path(path).is_absolute() or ".." in Path(path).parts:
        fix = "give paths from the folder that you submit from"
        if path and "\0" not in path and (folder / path).is_file():
            fix = f"submit from a folder that it is in, or send one: --workdir {Path(path).parent} -- {Path(path).name}"
        raise wrong(field, f"{path!r} is not below {folder}", fix)
    return folder / path


def wrong(field: str, what: str, fix: str) -> SpecError:
    """An error of one field."""
    return SpecError([Problem.of(field, what, fix)])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def _named(path: Path, hidden: list[str]) -> bool:
    """Whether each hidden part of a path was named: ``*`` matches no hidden part."""
    parts = [part for part in path.parts if part.startswith(".")]
    return all(any(fnmatchcase(part, pattern) for pattern in hidden) for part in parts)
