"""Files that are whole or absent, whatever moment the machine dies at. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kittrain.system import direct

Buffer = bytes | bytearray | memoryview


def write(path: Path, content: Buffer, *, exclusive: bool = False) -> None:
    """Write a file through to the disk.

    Args:
        path: the file; its folder exists.
        content: all of it.
        exclusive: fail with FileExistsError where the file is there already.

    Raises:
        OSError: as the system said it.
    """
    write_parts(path, [content], exclusive=exclusive)


def write_parts(path: Path, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
    """As ``write``, of contents that are asked for one after the other; they go past the page cache where they can."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    descriptor = os.open(path, flags, 0o644)
    try:
        for part in parts:
            rest = memoryview(part)
            rest = rest[direct.write(descriptor, rest) :]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, so that they are there after a power cut, too."""
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries through to the disk: a rename is durable only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: Buffer) -> None:
    """Replace a file durably: a reader sees the old content or the new one, never a part.

    Raises:
        OSError: as the system said it; the old content stays.
    """
    replace_parts(path, [content])


def replace_parts(path: Path, parts: Iterable[Buffer]) -> None:
    """As ``replace``, of contents that are asked for one after the other. What asking raises is raised, too."""
    scratch = path.with_name(f".tmp-{path.name}.{os.getpid()}")
    try:
        write_parts(scratch, parts)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    sync_folder(path.parent)
