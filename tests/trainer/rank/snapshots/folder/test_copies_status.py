"""A run's mark in a node's folder."""

from __future__ import annotations

from pathlib import Path

from kittrain.rank.snapshots.folder import copies_status
from kittrain.rank.snapshots.folder.copies_status import CopiesStatus


def test_a_mark_is_read_by_its_run_alone(tmp_path: Path) -> None:
    assert copies_status.read(tmp_path, "run-1") is None
    one = CopiesStatus(run="run-1", step=3, have=1, wanted=2, copied_step=2, copied_digest="d", warning="slow")
    copies_status.write(tmp_path, one)
    assert copies_status.read(tmp_path, "run-1") == one
    assert copies_status.read(tmp_path, "run-2") is None
    (tmp_path / copies_status.FILE).write_text("{")
    assert copies_status.read(tmp_path, "run-1") is None
