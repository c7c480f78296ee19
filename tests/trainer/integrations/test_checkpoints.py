"""The framework checkpoint that a run resumes from, and resuming on another number of ranks."""

from __future__ import annotations

import shutil
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
    remove,
    remove_older,
    rename,
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
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"checkpoint-{step}" for step in (3, 5, 6)]
    prune(tmp_path, "checkpoint-", keep=2, protected=str(tmp_path / "checkpoint-3"))
    checkpoint(tmp_path, 7)
    prune(tmp_path, "checkpoint-", keep=1, protected=str(tmp_path / "checkpoint-3"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint-3", "checkpoint-7"]
    checkpoint(tmp_path, 10)
    prune(tmp_path, "checkpoint-", keep=0)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint-10"], "the newest always stays"


def test_what_a_kill_leaves_of_a_removed_checkpoint_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint(tmp_path, 1)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before it
    remove(path)
    assert newest(tmp_path, "checkpoint-") is None


def test_checkpoints_of_two_names_are_one_sequence(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2)
    renamed = rename(checkpoint(tmp_path, 3), "resume-3")
    assert newest(tmp_path, "checkpoint-", "resume-") == renamed
    (tmp_path / "checkpoint-3").mkdir()
    assert rename(tmp_path / "checkpoint-3", "resume-3") == renamed, "in place of the other"
    assert Marker.read(renamed) is None
    remove_older(tmp_path, "resume-", 3)
    assert renamed.is_dir()
    remove_older(tmp_path, "resume-", 4)
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint-2"]


def test_a_marker_of_the_version_before_is_that_of_a_training_that_has_not_ended(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"step": 3, "ranks": 2, "accumulation": 1}', encoding="utf-8")
    assert Marker.read(tmp_path) == Marker(step=3, ranks=2, limit="")


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
