"""Durable writes: after a crash a file is complete or absent. Standard library only."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from kittrain.system import direct_io

Buffer = bytes | bytearray | memoryview


def write(path: Path, content: Buffer, *, exclusive: bool = False) -> None:
    """Write a file and fsync it.

    Args:
        path: the file, in an existing folder.
        content: its whole content.
        exclusive: raise FileExistsError if the file exists.

    Raises:
        OSError: the write failed.
    """
    write_parts(path, [content], exclusive=exclusive)


def write_parts(path: Path, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
    """As ``write``, with the content in parts that are iterated lazily; bypasses the page cache if possible."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    descriptor = os.open(path, flags, 0o644)
    try:
        for part in parts:
            rest = memoryview(part)
            rest = rest[direct_io.write(descriptor, rest) :]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_at(path: Path, parts: Iterable[tuple[int, Buffer]]) -> None:
    """Write parts of an existing file, each at its offset, and fsync it.

    Raises:
        OSError: a write failed.
    """
    with path.open("r+b") as file:
        for start, part in parts:
            file.seek(start)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Create a folder and its parents durably: they survive a power cut."""
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Fsync a folder's entries: a rename is durable only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Write out the whole file system that a folder is in: one call for thousands of files.

    Call it before the rename that lets others find these files.

    Raises:
        OSError: a write failed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):  # os.sync() would wait for all other disks, too
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)


def replace(path: Path, content: Buffer) -> None:
    """Replace a file atomically and durably: a reader sees the old or the new content, never a part.

    Raises:
        OSError: a write failed; the old content stays.
    """
    replace_parts(path, [content])


def replace_parts(path: Path, parts: Iterable[Buffer]) -> None:
    """As ``replace``, with the content in parts that are iterated lazily; passes on what the iteration raises."""
    scratch = path.with_name(f".tmp-{path.name}.{os.getpid()}")
    try:
        write_parts(scratch, parts)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    sync_folder(path.parent)
