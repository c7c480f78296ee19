"""When a snapshot is due."""

from __future__ import annotations

from kittrain.env import RankEnv
from kittrain.training.cadence import Cadence


def taken(cadence: Cadence, steps: range, *, busy: range = range(0)) -> list[int]:
    """The steps that snapshots are taken behind, while none can be taken at some."""
    behind = []
    for step in steps:
        if cadence.reached(step, due=False) and step not in busy:
            cadence.begin(step)
            behind.append(step)
    return behind


def test_every_so_many_steps_wherever_it_went_on_from() -> None:
    cadence = Cadence(RankEnv(), every=5)
    cadence.begin(7)
    assert taken(cadence, range(8, 22)) == [10, 15, 20]


def test_one_that_had_to_wait_does_not_move_those_behind_it() -> None:
    assert taken(Cadence(RankEnv(), every=5), range(1, 22), busy=range(5, 13)) == [13, 15, 20]


def test_rank_0_tells_the_time_to_all() -> None:
    assert Cadence(RankEnv(snapshot_seconds=0), every=5).overdue
    assert not Cadence(RankEnv(snapshot_seconds=0, rank=1), every=5).overdue
    assert not Cadence(RankEnv(snapshot_seconds=3600), every=5).overdue
    assert not Cadence(RankEnv(), every=5).overdue
    assert Cadence(RankEnv(rank=1), every=5).reached(1, due=True)


def test_a_metric_that_the_best_is_kept_by_is_worth_a_snapshot() -> None:
    cadence = Cadence(RankEnv(snapshot_keep_best="max:top:5"), every=5)
    assert cadence.measured({"loss": 1.0, "top:5": 0.5})
    assert not cadence.measured({"loss": 1.0})
    assert not Cadence(RankEnv(), every=5).measured({"loss": 1.0})
