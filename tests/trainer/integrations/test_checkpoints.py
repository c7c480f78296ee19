"""The framework checkpoint that a run resumes from, and resuming on another number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.integrations.checkpoints import (
    MARKER,
    Marker,
    complete,
    kept_accumulation,
    newest,
    position_note,
    prune,
    sync,
)


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    (path / "part").mkdir(parents=True)
    (path / "part" / "weights").write_bytes(b"1")
    sync(path)
    if marked:
        complete(path, Marker(step=step, ranks=2))
    return path


def test_the_newest_is_the_one_with_the_largest_step_that_is_complete(tmp_path: Path) -> None:
    assert newest(tmp_path / "none", "checkpoint-") is None
    assert newest(tmp_path, "checkpoint-") is None
    for step in (9, 10):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 11, marked=False)
    (checkpoint(tmp_path, 12, marked=False) / MARKER).write_text('{"step": 12', encoding="utf-8")
    (tmp_path / "checkpoint-13").write_text("a file", encoding="utf-8")
    checkpoint(tmp_path, 14).rename(tmp_path / "checkpoint-14-copy")
    assert newest(tmp_path, "checkpoint-") == tmp_path / "checkpoint-10"


def test_pruning_keeps_the_newest_and_what_is_being_written(tmp_path: Path) -> None:
    for step, marked in ((1, True), (2, False), (3, True), (4, False), (5, True), (6, False)):
        checkpoint(tmp_path, step, marked=marked)
    prune(tmp_path, "checkpoint-", keep=2)
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"checkpoint-{step}" for step in (3, 4, 5, 6)]


@pytest.mark.parametrize(
    ("marker", "ranks", "accumulation"),
    [
        (None, 2, None),
        (Marker(step=1, ranks=4), 2, 2),
        (Marker(step=1, ranks=2, accumulation=6), 4, 3),
        (Marker(step=1, ranks=4), 3, None),
        (Marker(step=1, ranks=2), 4, None),
    ],
)
def test_a_step_keeps_its_batches_if_the_ranks_can_share_them(
    marker: Marker | None, ranks: int, accumulation: int | None
) -> None:
    assert kept_accumulation(marker, ranks) == accumulation


def test_a_changed_global_batch_is_a_warning() -> None:
    before = Marker(step=1, ranks=4)
    assert not position_note(before, 4)
    assert not position_note(None, 4)
    assert "2 batches per rank and step instead of 1" in position_note(before, 2)
    assert "may repeat or be left out" in position_note(before, 3)
