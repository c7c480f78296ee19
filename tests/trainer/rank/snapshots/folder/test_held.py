"""What folders hold, and which snapshots all of them together have."""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.folder.held import Held, Holdings, complete, spread
from kittrain.rank.snapshots.folder.snapshot import MANIFEST
from tests.trainer.saved import manifest, save


def held(step: int, *numbers: int, generation: int = 1, digest: str = "d", total: int = 2) -> Held:
    return Held(step=step, generation=generation, digest=digest, shards=total, numbers=numbers)


def test_a_folder_holds_the_shards_that_are_there_by_name(tmp_path: Path) -> None:
    saved = save(tmp_path, manifest(3))
    path = tmp_path / saved.name
    (path / shards.name(0)).rename(path / f".tmp-{shards.name(0)}")  # not whole yet
    assert Holdings(tmp_path).scan() == [held(3, 1, digest=saved.digest)]


def test_what_is_damaged_unfinished_or_gone_is_left_out(tmp_path: Path) -> None:
    save(tmp_path, manifest(1))
    save(tmp_path, manifest(2))
    holdings = Holdings(tmp_path)
    assert [one.step for one in holdings.scan()] == [2, 1]
    (tmp_path / manifest(2).name / MANIFEST).write_text("{}")
    assert [one.step for one in holdings.scan()] == [1]
    shutil.rmtree(tmp_path / manifest(1).name)
    assert holdings.scan() == []
    assert Holdings(tmp_path / "none").scan() == []


def test_the_newest_is_that_of_the_newest_generation() -> None:
    found = spread({0: [held(90, 0, 1), held(20, 0, generation=2)], 1: [held(20, 1, generation=2)]})
    assert [(one.generation, one.step, one.missing) for one in found] == [(2, 20, []), (1, 90, [])]


def test_a_shard_that_nobody_holds_is_missing() -> None:
    (found,) = spread({0: [held(10, 0, total=3)], 4: [held(10, 0, 2, total=3)]})
    assert (found.holders, found.missing) == (((0, 4), (), (4,)), [1])
    assert complete([found]) == []


@given(st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, 4)), min_size=1), st.integers(0, 3))
def test_it_is_complete_without_a_node_if_each_shard_is_also_elsewhere(nodes: dict[int, set[int]], lost: int) -> None:
    all_held = {node: [held(1, *sorted(numbers), total=5)] for node, numbers in nodes.items()}
    left = {node: ones for node, ones in all_held.items() if node != lost}
    elsewhere = set().union(*(numbers for node, numbers in nodes.items() if node != lost))
    assert bool(complete(spread(left))) == (elsewhere == set(range(5)))
