"""One writer's file of the run's history, and the older files of its node, within the bytes that a node may have.

A file is appended to in whole lines, or replaced by a shorter one under the same name, so that a kill at any moment
leaves either. Files of former agents of the node become one: they would be as many as there were restarts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kitjob import timeline
from kitjob.thinning import thin

SUFFIX: Final = ".jsonl"
SEPARATE: Final = 4  # files of former agents that stay as they are


class HistoryFile:
    """A file that grows.

    Args:
        path: of the file; its folder is created.
        limit: bytes that the node's files may have together; this one and the former ones have half of it each.

    Raises:
        OSError: the folder cannot be read or written.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit // 2
        path.parent.mkdir(parents=True, exist_ok=True)
        for draft in path.parent.glob(f".[0-9]*{SUFFIX}.*"):  # of an agent that was killed as it wrote one
            draft.unlink(missing_ok=True)
        _join([one for one in former(path.parent) if one != path], self._limit)
        path.touch()
        self._torn = False

    def append(self, lines: bytes) -> None:
        """Write whole lines.

        Raises:
            OSError: some of them are missing.
        """
        if _size(self._path) + len(lines) > self._limit:
            self._shorten()
        rest = b"\n" + lines if self._torn else lines
        self._torn = True
        with self._path.open("ab", buffering=0) as file:  # not longer: its volume may be unmounted, or made read-only
            while rest:
                rest = rest[file.write(rest) :]
        self._torn = False

    def _shorten(self) -> None:
        _write(self._path, timeline.content(thin([*timeline.lines(self._path.read_bytes())], self._limit // 2)))
        self._torn = False


def former(folder: Path) -> list[Path]:
    """The files of a node, the oldest first: their names begin with the time in milliseconds."""
    return sorted(folder.glob(f"[0-9]*{SUFFIX}"))


def _size(path: Path) -> int:
    """Of a file, which may be gone: what prunes snapshots removes old histories."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _join(files: list[Path], limit: int) -> None:
    """Make former files one if they are many, or large. A kill in between leaves lines twice, which readers expect."""
    contents = [path.read_bytes() for path in files]
    if len(files) <= SEPARATE and sum(map(len, contents)) <= limit:
        return
    _write(files[-1], timeline.content(thin([one for part in contents for one in timeline.lines(part)], limit // 2)))
    for path in files[:-1]:
        path.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
