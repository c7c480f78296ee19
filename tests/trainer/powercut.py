"""Simulates a power cut at any system call: builds the possible contents of the disk from a record of the calls.

File contents are durable once the file is synced, and a folder's entries once the folder is synced. Of everything
else the disk may have all, nothing, or parts in another order: any of a folder's changes, and any of a file's writes,
with zeros or nothing where the others would be. Ranks may be on other machines: a sync covers its writer's writes only.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import IO, Any, Final, Literal
from unittest.mock import patch

from kittrain.system import files

Call = tuple[Any, ...]  # its name and arguments
Contents = Literal["lost", "torn", "whole"]  # fate of written bytes that are not synced
Entries = Literal["none", "all", "last"]  # which changes of a folder survive that are not synced
Change = tuple[int, bytes | None]  # where bytes were written, or where the file was cut off or extended with zeros


@dataclass(eq=False)
class File:
    """A file's synced contents, and what each writer has changed since."""

    synced: bytes = b""
    unsynced: list[tuple[str, Change]] = field(default_factory=list)

    @property
    def now(self) -> bytes:
        return _written(self.synced, [change for _, change in self.unsynced])

    def sync(self, writer: str) -> None:
        self.synced = _written(self.synced, [change for one, change in self.unsynced if one == writer])
        self.unsynced = [(one, change) for one, change in self.unsynced if one != writer]

    def after_cut(self, contents: Contents, chance: Random | None) -> bytes:
        if not self.unsynced or contents == "lost":
            return self.synced
        if chance:
            return _written(self.synced, [one for _, change in self.unsynced for one in _survives(change, chance)])
        return self.now if contents == "whole" else self.now[: len(self.now) // 2]


@dataclass(eq=False)
class Folder:
    """A folder's synced entries, and its changes since, each of which is atomic."""

    now: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    unsynced: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, **entries: File | Folder | None) -> None:
        """Change entries atomically; None removes one."""
        self.unsynced.append(entries)
        self.now = _changed(self.now, entries)

    def sync(self, _writer: str) -> None:
        self.synced, self.unsynced = dict(self.now), []

    def after_cut(self, entries: Entries, chance: Random | None) -> dict[str, File | Folder]:
        if chance:
            survived = self.synced
            for change in self.unsynced:
                survived = _changed(survived, change) if chance.random() < EVEN else survived
            return survived
        match entries:
            case "none":
                return self.synced
            case "all":
                return self.now
            case "last":
                return _changed(self.synced, self.unsynced[-1] if self.unsynced else {})


EVEN: Final = 0.5


def _survives(change: Change, chance: Random) -> list[Change]:
    """All, the first half, or nothing of a write."""
    at, content = change
    kept = chance.choice(["lost", "torn", "whole"])
    return [] if kept == "lost" else [(at, content[: len(content) // 2] if content and kept == "torn" else content)]


def _written(before: bytes, changes: list[Change]) -> bytes:
    content = bytearray(before)
    for at, part in changes:
        content.extend(bytes(max(0, at - len(content))))  # a hole reads as zeros
        if part is None:
            del content[at:]
        else:
            content[at : at + len(part)] = part
    return bytes(content)


def _changed(before: dict[str, File | Folder], entries: dict[str, File | Folder | None]) -> dict[str, File | Folder]:
    return {name: node for name, node in (before | entries).items() if node is not None}


class Record:
    """Records the system calls that change something below a folder, and marks between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.writer = "rank 0"  # whose calls are recorded
        self.before: dict[str, Any] = {}  # the contents, all synced, when recording starts
        self.calls: list[Call] = []
        self._paths: dict[int, Path | None] = {}

    def mark(self, what: str) -> None:
        """Record that something is guaranteed from here on."""
        self.calls.append(("mark", what))

    def path(self, given: Any, folder: int | None = None) -> Path | None:
        """The path that a call refers to, relative to the root; None if it is elsewhere."""
        path = Path(os.fsdecode(given)) if isinstance(given, bytes) else Path(given)
        if folder is not None:
            parent = self._paths.get(folder)
            return parent / path if parent is not None else None
        return path.relative_to(self.root) if path.is_relative_to(self.root) else None

    def killed(self, calls: int, root: Path) -> Record:
        """A record that continues in another folder after so many calls; nothing more was synced than by then."""
        apply_cut(self, Cut(calls, "whole", "all", "all"), root)
        record = Record(root)
        record.before, record.calls = self.before, [one for one in self.calls[:calls] if one[0] != "mark"]
        return record

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls made within the context; they are executed, too."""
        self.before = self.before or _read(self.root)
        names = ("open", "write", "pwrite", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(patch.object(os, name, getattr(self, f"_{name}")(getattr(os, name))))
            stack.enter_context(patch.object(io, "open", self._open_file(io.open)))
            synced = self._sync_file_system(files.sync_file_system)
            stack.enter_context(patch.object(files, "sync_file_system", synced))
            yield

    def _add(self, name: str, path: Path | None, *args: Any) -> None:
        if path is not None:
            self.calls.append((name, path, *args))

    def _open(self, call: Callable[..., int]) -> Callable[..., int]:
        def recorded(path: Any, flags: int, *args: Any, dir_fd: int | None = None) -> int:
            number = call(path, flags, *args, dir_fd=dir_fd)
            self._paths[number] = self.path(path, dir_fd)
            if flags & os.O_CREAT:
                self._add("create", self._paths[number])
            return number

        return recorded

    def _open_file(self, call: Callable[..., IO[Any]]) -> Callable[..., IO[Any]]:
        """What ``Path.open`` calls: its files write without Python's ``os.write``."""

        def recorded(given: Any, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
            path = None if isinstance(given, int) else self.path(given)
            if path is None or mode not in {"wb", "xb", "r+b"}:
                assert path is None or set(mode) <= set("rbt"), f"{mode} is not recorded"
                file = call(given, mode, *args, **options)
                if not isinstance(given, int):
                    self._paths[file.fileno()] = path  # it may be synced; a closed file may have had its number
                return file
            raw = _RecordedFile(given, mode, self, path)
            self._paths[raw.fileno()] = path
            if mode != "r+b":
                self._add("create", path)
            return io.BufferedRandom(raw) if raw.readable() else io.BufferedWriter(raw)

        return recorded

    def _write(self, call: Callable[..., int]) -> Callable[..., int]:
        def recorded(number: int, content: Any) -> int:
            written = call(number, content)
            at = os.lseek(number, 0, os.SEEK_CUR) - written if self._paths.get(number) else 0
            self._add("write", self._paths.get(number), at, bytes(memoryview(content)[:written]), self.writer)
            return written

        return recorded

    def _pwrite(self, call: Callable[..., int]) -> Callable[..., int]:
        def recorded(number: int, content: Any, at: int) -> int:
            written = call(number, content, at)
            self._add("write", self._paths.get(number), at, bytes(memoryview(content)[:written]), self.writer)
            return written

        return recorded

    def _fsync(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(number: int) -> None:
            call(number)
            self._add("fsync", self._paths.get(number), self.writer)

        return recorded

    def _sync_file_system(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(folder: Path) -> None:
            call(folder)
            self._add("sync_all", self.path(folder), self.writer)

        return recorded

    def _rename(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(source: Any, target: Any) -> None:
            call(source, target)
            self._add("rename", self.path(source), self.path(target))

        return recorded

    _replace = _rename

    def _mkdir(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(path: Any, *args: Any) -> None:
            call(path, *args)
            self._add("mkdir", self.path(path))

        return recorded

    def _unlink(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(path: Any, *, dir_fd: int | None = None) -> None:
            call(path, dir_fd=dir_fd)
            self._add("remove", self.path(path, dir_fd))

        return recorded

    _rmdir = _unlink


class _RecordedFile(io.FileIO):
    def __init__(self, given: Any, mode: str, record: Record, path: Path) -> None:
        super().__init__(given, mode)
        self._record, self._path = record, path

    def write(self, content: Any) -> int:
        at = self.tell()
        written = super().write(content)
        part = bytes(memoryview(content)[:written])
        self._record.calls.append(("write", self._path, at, part, self._record.writer))
        return written

    def truncate(self, size: int | None = None) -> int:
        size = super().truncate(size)
        self._record.calls.append(("write", self._path, size, None, self._record.writer))
        return size


@dataclass(frozen=True)
class Cut:
    """One possible power cut: after how many calls, and what of the unsynced changes survives."""

    calls: int
    contents: Contents
    outer: Entries  # for the root and the folder in it
    inner: Entries  # for all folders below
    seed: int | None = None  # draws what survives of each file and folder instead


DRAWN: Final = 4  # cuts after each call


def cuts(record: Record, *, after: int = 0) -> Iterator[Cut]:
    """All power cuts of a few kinds after at least so many calls, and some that are drawn."""
    kinds: tuple[Entries, ...] = ("none", "all", "last")
    contents: tuple[Contents, ...] = ("lost", "torn", "whole")
    for calls in range(after, len(record.calls) + 1):
        yield from (Cut(calls, *kind) for kind in product(contents, kinds, kinds))
        yield from (Cut(calls, "torn", "all", "all", seed) for seed in range(DRAWN))


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
    chance = None if cut.seed is None else Random(f"{cut.calls} {cut.seed}")
    _write(disk.root, target, cut, chance, depth=0)
    return marks


class _Disk:
    def __init__(self, before: dict[str, Any]) -> None:
        self.root = _folder(before)

    def create(self, path: Path) -> None:
        folder = self._in(path)
        node = folder.now.get(path.name)
        if isinstance(node, File):
            node.unsynced.append(("rank 0", (0, None)))
        else:
            folder.change(**{path.name: File()})

    def write(self, path: Path, at: int, content: bytes | None, writer: str) -> None:
        node = self._at(path)
        assert isinstance(node, File)
        node.unsynced.append((writer, (at, content)))

    def fsync(self, path: Path, writer: str) -> None:
        self._at(path).sync(writer)

    def sync_all(self, _path: Path, writer: str) -> None:
        _sync_below(self.root, writer)

    def rename(self, source: Path, target: Path) -> None:
        folder, other = self._in(source), self._in(target)
        moved = {target.name: folder.now[source.name]}
        if folder is other:
            folder.change(**{source.name: None}, **moved)
        else:  # not even the order of two folders' changes is certain
            folder.change(**{source.name: None})
            other.change(**moved)

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


def _sync_below(node: File | Folder, writer: str) -> None:
    node.sync(writer)
    for below in node.now.values() if isinstance(node, Folder) else ():
        _sync_below(below, writer)


def _read(folder: Path) -> dict[str, Any]:
    return {entry.name: _read(entry) if entry.is_dir() else entry.read_bytes() for entry in folder.iterdir()}


def _folder(contents: dict[str, Any]) -> Folder:
    made = {name: _folder(one) if isinstance(one, dict) else File(one) for name, one in contents.items()}
    return Folder(dict(made), dict(made))


OUTER: Final = 2  # depth of the outer folders: the root and the snapshot folder in it


def _write(folder: Folder, target: Path, cut: Cut, chance: Random | None, *, depth: int) -> None:
    target.mkdir()
    for name, node in folder.after_cut(cut.outer if depth < OUTER else cut.inner, chance).items():
        if isinstance(node, Folder):
            _write(node, target / name, cut, chance, depth=depth + 1)
        else:
            (target / name).write_bytes(node.after_cut(cut.contents, chance))
