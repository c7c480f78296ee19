"""Simulates a power cut at any system call: builds the possible contents of the disk from a record of the calls.

File contents are durable once the file is synced, and a folder's entries once the folder is synced. Of everything
else the disk may have all, nothing, or parts in another order.
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

Call = tuple[Any, ...]  # its name and arguments
Contents = Literal["lost", "torn", "whole"]  # fate of written bytes that are not synced
Entries = Literal["none", "all", "last"]  # which changes of a folder survive that are not synced


@dataclass(eq=False)
class File:
    """A file's written and synced contents."""

    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def sync(self) -> None:
        self.synced = bytes(self.now)

    def after_cut(self, contents: Contents) -> bytes:
        if contents == "whole" or self.now == self.synced:
            return bytes(self.now)
        return self.synced if contents == "lost" else bytes(self.now[: len(self.now) // 2])


@dataclass(eq=False)
class Folder:
    """A folder's current and synced entries."""

    now: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    last: dict[str, File | Folder | None] = field(default_factory=dict)

    def change(self, **entries: File | Folder | None) -> None:
        """Change entries atomically; None removes one."""
        self.last = entries
        self.now = _changed(self.now, entries)

    def sync(self) -> None:
        self.synced, self.last = dict(self.now), {}

    def after_cut(self, entries: Entries) -> dict[str, File | Folder]:
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
    """Records the system calls that change something below a folder, and marks between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before: dict[str, Any] = {}  # the contents, all synced, when recording starts
        self.calls: list[Call] = []
        self._paths: dict[int, Path] = {}

    def mark(self, what: str) -> None:
        """Record that something is guaranteed from here on."""
        self.calls.append(("mark", what))

    def path(self, given: Any, folder: int | None) -> Path:
        """The path that a call refers to, relative to the root."""
        path = Path(os.fsdecode(given)) if isinstance(given, bytes) else Path(given)
        return (self._paths[folder] / path) if folder is not None else path.relative_to(self.root)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls made within the context; they are executed, too."""
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
    """One possible power cut: after how many calls, and what of the unsynced changes survives."""

    calls: int
    contents: Contents
    outer: Entries  # for the root and the folder in it
    inner: Entries  # for all folders below


def cuts(record: Record, *, after: int = 0) -> Iterator[Cut]:
    """All possible power cuts after at least so many calls."""
    kinds: tuple[Entries, ...] = ("none", "all", "last")
    contents: tuple[Contents, ...] = ("lost", "torn", "whole")
    for calls in range(after, len(record.calls) + 1):
        yield from (Cut(calls, *kind) for kind in product(contents, kinds, kinds))


def apply_cut(record: Record, cut: Cut, target: Path, *, without: int | None = None) -> set[str]:
    """Write the disk's contents after a cut to a folder; returns the marks before the cut.

    Args:
        record: of the calls.
        cut: when, and what survives.
        target: a new folder that replaces the recorded root.
        without: index of a call to leave out, such as a forgotten fsync.
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


OUTER: Final = 2  # depth of the outer folders: the root and the snapshot folder in it


def _write(folder: Folder, target: Path, cut: Cut, *, depth: int) -> None:
    target.mkdir()
    for name, node in folder.after_cut(cut.outer if depth < OUTER else cut.inner).items():
        if isinstance(node, Folder):
            _write(node, target / name, cut, depth=depth + 1)
        else:
            (target / name).write_bytes(node.after_cut(cut.contents))
