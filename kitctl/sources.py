"""The files that are sent with a job: which ones, and whether they may leave this machine.

What lives here: the paths, globs and folders of ``command`` and ``sync``, and reading them. They end up in a ConfigMap,
so nothing is sent that was not named: no hidden file, and no target of a link outside the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from kitctl.errors import Problem, SpecError
from kitctl.spec import JobSpec

SOURCES_LIMIT: Final = 900 * 1024  # bytes; they are sent in a ConfigMap, which holds 1 MiB


def sources(spec: JobSpec, folder: Path) -> dict[str, str]:
    """The files to send with the job, by path relative to ``folder``: a relative script, and ``sync``.

    Raises:
        SpecError: one of them is missing, not text, outside the folder or hidden, or they are too large together.
    """
    found: dict[Path, str] = {}
    if spec.script and not Path(spec.script).is_absolute():
        found[_script(folder, spec.script)] = "command"
    for number, pattern in enumerate(spec.sync):
        field = f"sync[{number}]"
        found |= dict.fromkeys(_matches(folder, pattern, field), field)
    for path, field in found.items():
        _require_inside(path, folder, field)
    _require_small(found)
    return {path.relative_to(folder).as_posix(): _text(path, field) for path, field in sorted(found.items())}


def _script(folder: Path, script: str) -> Path:
    path = _below(folder, script, "command")
    if not path.exists():
        fix = "give a path from this folder, or an absolute path in the image"
        raise _wrong("command", f"{script} does not exist in {folder}", fix)
    if not path.is_file():
        raise _wrong("command", f"{script} is not a file", "name a script; sync takes folders")
    return path


def _matches(folder: Path, pattern: str, field: str) -> Iterator[Path]:
    """The files that match a path, a glob or a folder."""
    _below(folder, pattern, field)
    hidden = [part for part in Path(pattern).parts if part.startswith(".")]
    try:
        paths = sorted(folder.glob(pattern)) if Path(pattern).parts else [folder]
    except ValueError as error:
        raise _wrong(field, f"{pattern!r} is not a pattern: {error}", "write it like lib, *.txt or **/*.py") from error
    files = [file for path in paths for file in _files(path) if _named(file.relative_to(folder), hidden)]
    if not files:
        what = f"{pattern} matches nothing in {folder}, or only hidden files"
        raise _wrong(field, what, "give a path from this folder; name hidden files themselves, as in .env")
    yield from files


def _below(folder: Path, path: str, field: str) -> Path:
    if not path or "\0" in path or Path(path).is_absolute() or ".." in Path(path).parts:
        raise _wrong(field, f"{path!r} is not below {folder}", "give paths from the folder that you submit from")
    return folder / path


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def _named(path: Path, hidden: list[str]) -> bool:
    """Whether each hidden part of a path was named: ``*`` matches no hidden part."""
    parts = [part for part in path.parts if part.startswith(".")]
    return all(any(fnmatchcase(part, pattern) for pattern in hidden) for part in parts)


def _require_inside(path: Path, folder: Path, field: str) -> None:
    """A link may only lead to a file of the folder that is not hidden."""
    real, root = path.resolve(), folder.resolve()
    if real == root / path.relative_to(folder):
        return
    name = path.relative_to(folder)
    if not real.is_relative_to(root) or any(part.startswith(".") for part in real.relative_to(root).parts):
        raise _wrong(field, f"{name} is a link to {real}, which is not sent", "name the file itself, or copy it")


def _require_small(found: dict[Path, str]) -> None:
    for path, field in found.items():
        if path.exists() and not path.is_file():
            raise _wrong(field, f"{path.name} is not a file", "only text files can be sent")
    size = sum(path.stat().st_size for path in found if path.exists())
    if size > SOURCES_LIMIT:
        what = f"{size // 1024} KiB of files are more than the {SOURCES_LIMIT // 1024} that can be sent with a job"
        raise _wrong("sync", what, "sync fewer, or put them into the image or on a volume")


def _text(path: Path, field: str) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        what = f"{path.name} cannot be sent with the job: {error}"
        raise _wrong(field, what, "only text files can be sent; put others on a volume") from error


def _wrong(field: str, what: str, fix: str) -> SpecError:
    return SpecError([Problem.of(field, what, fix)])
