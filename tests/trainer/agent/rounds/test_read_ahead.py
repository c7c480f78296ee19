"""What a node that stands by asks the kernel to read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kittrain.agent.rounds.read_ahead import ReadAhead


def snapshot(folder: Path, name: str, *files: str) -> None:
    (folder / name).mkdir()
    for file in files:
        (folder / name / file).write_bytes(b"weights")


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="macOS has no such call")
def test_each_newest_snapshot_is_read_ahead_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda file, *_: asked.append(Path(f"/proc/self/fd/{file}").readlink().parent.name)
    )
    look = ReadAhead(tmp_path)
    look()
    assert asked == []
    snapshot(tmp_path, "step-00000200-g0001", "shard-00000.bin")
    snapshot(tmp_path, "step-00000100-g0002", "shard-00000.bin", "shard-00001.bin")  # a later generation is newer
    (tmp_path / "bad-step-00000300-g0003").mkdir()
    look()
    look()
    assert asked == ["step-00000100-g0002"] * 2
    snapshot(tmp_path, "step-00000150-g0002", "shard-00000.bin")
    look()
    assert asked[2:] == ["step-00000150-g0002"]


@pytest.mark.parametrize("folder", [None, Path("/nonexistent/snapshots")])
def test_without_snapshots_there_is_nothing_to_read(folder: Path | None) -> None:
    ReadAhead(folder)()
