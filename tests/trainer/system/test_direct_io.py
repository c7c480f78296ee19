"""Writes with O_DIRECT are complete, also where file system or memory do not allow it."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kittrain.rank.snapshots.files import layout
from kittrain.system import direct_io, files

SIZES = (0, 1, direct_io.BLOCK - 1, direct_io.BLOCK, direct_io.BLOCK + 1, 5 * direct_io.BLOCK + 7)


def content(size: int, *, offset: int = 0) -> memoryview:
    """Memory at a multiple of BLOCK plus ``offset``."""
    memory = layout.aligned_memory(offset + size, pinned=False)
    memory.random_(0, 256, generator=torch.Generator().manual_seed(size))
    data: memoryview = memory[offset:].numpy().data
    return data


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk: for a file in memory, where `make test` has tests' files, any data bypasses the cache."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each write, whether it bypassed the cache."""
    seen = []
    write = os.write

    def watched(descriptor: int, data: memoryview) -> int:
        seen.append(bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & direct_io.FLAG))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", watched)
    return seen


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece", [direct_io.BLOCK, direct_io.PIECE])
def test_everything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, piece: int) -> None:
    monkeypatch.setattr(direct_io, "PIECE", piece)
    files.write_parts(tmp_path / "file", [content(size), b"the tail"])
    assert (tmp_path / "file").read_bytes() == bytes(content(size)) + b"the tail"


def test_whole_blocks_bypass_the_cache(tmp_path: Path, flags: list[bool]) -> None:
    files.write(tmp_path / "file", content(2 * direct_io.BLOCK + 1))
    assert flags == [True, False]


def test_unaligned_memory_goes_through_the_cache(tmp_path: Path, flags: list[bool]) -> None:
    data = content(2 * direct_io.BLOCK, offset=1)
    files.write(tmp_path / "file", data)
    assert flags[-1] is False
    assert (tmp_path / "file").read_bytes() == bytes(data)


def test_a_file_system_without_o_direct_gets_everything_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[bool]
) -> None:
    control = fcntl.fcntl

    def unable(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & direct_io.FLAG:
            raise OSError(errno.EINVAL, "Invalid argument")
        return control(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", unable)
    files.write(tmp_path / "file", content(2 * direct_io.BLOCK))
    assert flags == [False]
    assert (tmp_path / "file").read_bytes() == bytes(content(2 * direct_io.BLOCK))


def test_other_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path / "file", content(2 * direct_io.BLOCK))
