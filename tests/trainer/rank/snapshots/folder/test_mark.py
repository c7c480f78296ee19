"""A run's mark in a node's folder."""

from __future__ import annotations

from pathlib import Path

from kittrain.rank.snapshots.folder import mark
from kittrain.rank.snapshots.folder.mark import Mark


def test_a_mark_is_read_by_its_run_alone(tmp_path: Path) -> None:
    assert mark.read(tmp_path, "run-1") is None
    one = Mark(run="run-1", step=3, have=1, wanted=2, copied_step=2, copied_digest="d", warning="slow")
    mark.write(tmp_path, one)
    assert mark.read(tmp_path, "run-1") == one
    assert mark.read(tmp_path, "run-2") is None
    (tmp_path / mark.FILE).write_text("{")
    assert mark.read(tmp_path, "run-1") is None
