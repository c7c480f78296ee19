"""Each Trainer of a script has its place in the snapshot folder, the same one after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kittrain.integrations import places
from kittrain.integrations.places import FILE, Place, Record, choose, take


@pytest.fixture(autouse=True)
def root(tmp_path: Path) -> Iterator[Path]:
    """The place of the first Trainer, for a new process of the script."""
    places.forget()
    yield tmp_path / "snapshots" / "huggingface"
    places.forget()


def start(root: Path, *names: str) -> list[Place]:
    """What a new process of a script gets for its Trainers, which train."""
    places.forget()
    found = [take(root, name) for name in names]
    for one in found:
        one.begin()
    return found


def names(found: list[Place]) -> list[str]:
    return [one.folder.name for one in found]


def test_each_trainer_has_its_own_place_and_keeps_it(root: Path) -> None:
    folds = ("out/0", "out/1", "out/2")
    first = start(root, *folds)
    assert names(first) == ["huggingface", "huggingface-2", "huggingface-3"]
    first[0].end({"loss": 0.5})
    again = start(root, *folds)
    assert again == first
    assert [one.result for one in again] == [{"loss": 0.5}, None, None]


def test_trainers_of_one_name_are_told_apart_by_their_order(root: Path) -> None:
    first = start(root, "out", "out")
    assert names(first) == ["huggingface", "huggingface-2"]
    assert start(root, "out", "out") == first


def test_a_finished_trainer_that_is_left_out_after_a_restart_does_not_shift_the_others(root: Path) -> None:
    folds = start(root, "out/0", "out/1")
    folds[0].end({})
    assert start(root, "out/1") == folds[1:], "by its name"
    assert names(start(root, "out/2")) == ["huggingface-3"], "never the place of what is finished"


def test_a_name_that_changes_with_each_start_still_finds_its_place(root: Path) -> None:
    (morning,) = start(root, "out/9:00")
    (noon,) = start(root, "out/12:00")
    assert noon.folder == morning.folder
    noon.end({})
    assert names(start(root, "out/18:00")) == ["huggingface-2"], "it cannot be known to be the same"


def test_checkpoints_of_the_version_before_are_found(root: Path) -> None:
    (root / "checkpoint-10").mkdir(parents=True)
    assert names(start(root, "out")) == ["huggingface"]


def test_a_trainer_that_does_not_train_leaves_nothing_and_takes_no_others_place(root: Path) -> None:
    take(root, "out")
    take(root, "out").begin()
    assert [one.name for one in root.parent.iterdir()] == ["huggingface-2"]
    places.forget()
    assert names([take(root, "out"), take(root, "out")]) == ["huggingface", "huggingface-2"]


def test_each_training_of_a_trainer_has_its_own_checkpoints(root: Path) -> None:
    (place,) = start(root, "out")
    assert place.nth_call(1) == place
    assert place.nth_call(2).folder == root / "training-2"
    place.nth_call(2).begin()
    place.nth_call(2).end({"loss": 1.0})
    assert place.result is None
    assert place.nth_call(2).result == {"loss": 1.0}


def test_a_result_stays_when_training_begins_again(root: Path) -> None:
    (place,) = start(root, "out")
    place.end({"loss": 1.0})
    place.begin()
    assert place.result == {"loss": 1.0}


@pytest.mark.parametrize("content", ["", "[]", "1", '{"name": "out"}', '{"name": "out", "nth": "x", "result": null}'])
def test_a_record_that_is_not_one_is_none(root: Path, content: str) -> None:
    root.mkdir(parents=True)
    (root / FILE).write_text(content, encoding="utf-8")
    assert Record.read(root) is None


def test_a_place_is_never_given_twice() -> None:
    records = {1: Record(name="a", nth=1, result={}), 3: Record(name="b", nth=1)}
    assert choose("b", 1, records, []) == 3
    assert choose("c", 1, records, []) == 2
    assert choose("c", 1, records, [3, 2]) == 4, "3 is taken, and so is its order's"
    assert choose("a", 1, records, [1]) == 2
