"""A power cut at any system call: what a disk may hold then of what a process did, made from a record of its calls.

What was written lasts once its file was synced, and a folder's entries once the folder was. Of everything else a disk
may have kept all, nothing, or parts in another order than they were made in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal
from unittest.mock import patch

Call = tuple[Any, ...]  # its name, and what it was called with
Contents = Literal["lost", "torn", "whole"]  # of what was written and not synced
Entries = Literal[
    "none", "all", "last"
]  # of what was done to a folder and not synced: all, nothing, its last one alone


@dataclass(eq=False)
class File:
    """What was written, and what of it was synced."""

    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def sync(self) -> None:
        self.synced = bytes(self.now)

    def left(self, contents: Contents) -> bytes:
        if contents == "whole" or self.now == self.synced:
            return bytes(self.now)
        return self.synced if contents == "lost" else bytes(self.now[: len(self.now) // 2])


@dataclass(eq=False)
class Folder:
    """Its entries, and what of them was synced."""

    now: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    last: dict[str, File | Folder | None] = field(default_factory=dict)

    def change(self, **entries: File | Folder | None) -> None:
        """At once; None removes one."""
        self.last = entries
        self.now = _changed(self.now, entries)

    def sync(self) -> None:
        self.synced, self.last = dict(self.now), {}

    def left(self, entries: Entries) -> dict[str, File | Folder]:
        match entries:
            case "none":
                return self.synced
            case "all":
                return self.now
            case "last":
                return _changed(self.synced, self.last)


def _changed(before: dict[str, File | Folder], entries: dict[str, File | Folder | None]) -> dict[str, File | Folder]:
    return {name: node for name, node in (before | entries).items() if node is not None}


class Record:
    """The calls of the system that changed something below a folder, and marks between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before: dict[str, Any] = {}  # all that is there, and synced, when recording begins
        self.calls: list[Call] = []
        self._paths: dict[int, Path] = {}

    def mark(self, what: str) -> None:
        """From here on something holds."""
        self.calls.append(("mark", what))

    def path(self, given: Any, folder: int | None) -> Path:
        """Of what a call was about, relative to the root."""
        path = Path(os.fsdecode(given)) if isinstance(given, bytes) else Path(given)
        return (self._paths[folder] / path) if folder is not None else path.relative_to(self.root)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """What is called meanwhile is recorded, and done."""
        self.before = _read(self.root)
        with ExitStack() as stack:
            for name in ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir"):
                stack.enter_context(patch.object(os, name, getattr(self, f"_{name}")(getattr(os, name))))
            yield

    def _open(self, call: Callable[..., int]) -> Callable[..., int]:
        def recorded(path: Any, flags: int, *args: Any, dir_fd: int | None = None) -> int:
            number = call(path, flags, *args, dir_fd=dir_fd)
            self._paths[number] = self.path(path, dir_fd)
            if flags & os.O_CREAT:
                self.calls.append(("create", self._paths[number]))
            return number

        return recorded

    def _write(self, call: Callable[..., int]) -> Callable[..., int]:
        def recorded(number: int, content: Any) -> int:
            written = call(number, content)
            self.calls.append(("write", self._paths[number], bytes(memoryview(content)[:written])))
            return written

        return recorded

    def _fsync(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(number: int) -> None:
            call(number)
            self.calls.append(("fsync", self._paths[number]))

        return recorded

    def _rename(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(source: Any, target: Any) -> None:
            call(source, target)
            self.calls.append(("rename", self.path(source, None), self.path(target, None)))

        return recorded

    _replace = _rename

    def _mkdir(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(path: Any, *args: Any) -> None:
            call(path, *args)
            self.calls.append(("mkdir", self.path(path, None)))

        return recorded

    def _unlink(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(path: Any, *, dir_fd: int | None = None) -> None:
            call(path, dir_fd=dir_fd)
            self.calls.append(("remove", self.path(path, dir_fd)))

        return recorded

    _rmdir = _unlink


@dataclass(frozen=True)
class Cut:
    """One way in which the power may fail: behind how many calls, and what the disk has kept."""

    calls: int
    contents: Contents
    outer: Entries  # of the root and of the folder in it
    inner: Entries  # of all folders below


def cuts(record: Record, *, behind: int = 0) -> Iterator[Cut]:
    """All of them, behind at least so many calls."""
    kinds: tuple[Entries, ...] = ("none", "all", "last")
    contents: tuple[Contents, ...] = ("lost", "torn", "whole")
    for calls in range(behind, len(record.calls) + 1):
        yield from (Cut(calls, *kind) for kind in product(contents, kinds, kinds))


def left(record: Record, cut: Cut, target: Path, *, without: int | None = None) -> set[str]:
    """Make what the disk holds after a cut; gives the marks before it.

    Args:
        record: of the calls.
        cut: when, and what is kept.
        target: a new folder, in place of the recorded root.
        without: the number of a call that was never made: an fsync that somebody forgot.
    """
    disk = _Disk(record.before)
    marks = set()
    for number, (name, *args) in enumerate(record.calls[: cut.calls]):
        if name == "mark":
            marks.add(args[0])
        elif number != without:
            getattr(disk, name)(*args)
    _write(disk.root, target, cut, depth=0)
    return marks


class _Disk:
    def __init__(self, before: dict[str, Any]) -> None:
        self.root = _folder(before)

    def create(self, path: Path) -> None:
        folder = self._in(path)
        node = folder.now.get(path.name)
        if isinstance(node, File):
            node.now = bytearray()
        else:
            folder.change(**{path.name: File()})

    def write(self, path: Path, content: bytes) -> None:
        node = self._at(path)
        assert isinstance(node, File)
        node.now += content

    def fsync(self, path: Path) -> None:
        self._at(path).sync()

    def rename(self, source: Path, target: Path) -> None:
        folder = self._in(source)
        assert folder is self._in(target), "within one folder"
        folder.change(**{source.name: None, target.name: folder.now[source.name]})

    def mkdir(self, path: Path) -> None:
        self._in(path).change(**{path.name: Folder()})

    def remove(self, path: Path) -> None:
        self._in(path).change(**{path.name: None})

    def _in(self, path: Path) -> Folder:
        node = self._at(path.parent)
        assert isinstance(node, Folder)
        return node

    def _at(self, path: Path) -> File | Folder:
        node: File | Folder = self.root
        for name in path.parts:
            assert isinstance(node, Folder)
            node = node.now[name]
        return node


def _read(folder: Path) -> dict[str, Any]:
    return {entry.name: _read(entry) if entry.is_dir() else entry.read_bytes() for entry in folder.iterdir()}


def _folder(contents: dict[str, Any]) -> Folder:
    made = {
        name: _folder(one) if isinstance(one, dict) else File(bytearray(one), one) for name, one in contents.items()
    }
    return Folder(dict(made), dict(made))


OUTER: Final = 2  # the root, and the folder of snapshots in it


def _write(folder: Folder, target: Path, cut: Cut, *, depth: int) -> None:
    target.mkdir()
    for name, node in folder.left(cut.outer if depth < OUTER else cut.inner).items():
        if isinstance(node, Folder):
            _write(node, target / name, cut, depth=depth + 1)
        else:
            (target / name).write_bytes(node.left(cut.contents))
