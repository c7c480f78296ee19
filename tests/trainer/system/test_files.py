"""Durable writes: files are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.system import files


def test_replacing_leaves_one_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.replace(path, b"a longer text")
    files.replace(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (path / "in-the-way").mkdir(parents=True)
    with pytest.raises(OSError, match="file"):
        files.replace(path, b"text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_an_exclusive_write_never_overwrites(tmp_path: Path) -> None:
    files.write(tmp_path / "file", b"first", exclusive=True)
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "file", b"second", exclusive=True)
    assert (tmp_path / "file").read_bytes() == b"first"
