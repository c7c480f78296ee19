"""Writes past the page cache: whole, whatever the file system and the memory allow."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
import torch

from kittrain.snapshots import layout
from kittrain.system import direct, files

SIZES = (0, 1, direct.BLOCK - 1, direct.BLOCK, direct.BLOCK + 1, 5 * direct.BLOCK + 7)


def content(size: int, *, offset: int = 0) -> memoryview:
    """Bytes at a multiple of BLOCK, or so many behind one."""
    memory = layout.memory(offset + size, pinned=False)
    memory.random_(0, 256, generator=torch.Generator().manual_seed(size))
    data: memoryview = memory[offset:].numpy().data
    return data


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each write, whether it went past the cache."""
    seen = []
    write = os.write

    def watched(descriptor: int, data: memoryview) -> int:
        seen.append(bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & direct.FLAG))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", watched)
    return seen


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece", [direct.BLOCK, direct.PIECE])
def test_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, piece: int) -> None:
    monkeypatch.setattr(direct, "PIECE", piece)
    files.write_parts(tmp_path / "file", [content(size), b"the tail"])
    assert (tmp_path / "file").read_bytes() == bytes(content(size)) + b"the tail"


def test_whole_blocks_go_past_the_cache(tmp_path: Path, flags: list[bool]) -> None:
    files.write(tmp_path / "file", content(2 * direct.BLOCK + 1))
    assert flags == [True, False]


def test_memory_that_no_disk_can_read_goes_through_the_cache(tmp_path: Path, flags: list[bool]) -> None:
    data = content(2 * direct.BLOCK, offset=1)
    files.write(tmp_path / "file", data)
    assert flags[-1] is False
    assert (tmp_path / "file").read_bytes() == bytes(data)


def test_a_file_system_that_knows_no_other_way_gets_all_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[bool]
) -> None:
    control = fcntl.fcntl

    def unable(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & direct.FLAG:
            raise OSError(errno.EINVAL, "Invalid argument")
        return control(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", unable)
    files.write(tmp_path / "file", content(2 * direct.BLOCK))
    assert flags == [False]
    assert (tmp_path / "file").read_bytes() == bytes(content(2 * direct.BLOCK))


def test_other_errors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path / "file", content(2 * direct.BLOCK))
