"""When a snapshot is due."""

from __future__ import annotations

from kittrain.job.env import RankEnv
from kittrain.rank.training.snapshot_schedule import SnapshotSchedule
from tests.trainer.settings import job


def taken(schedule: SnapshotSchedule, steps: range, *, busy: range = range(0)) -> list[int]:
    """The steps after which snapshots are taken, except while busy."""
    steps_taken = []
    for step in steps:
        if schedule.is_due(step, time_due=False) and step not in busy:
            schedule.restart(step)
            steps_taken.append(step)
    return steps_taken


def test_multiples_of_the_steps_wherever_training_was_resumed() -> None:
    schedule = SnapshotSchedule(RankEnv(), every=5)
    schedule.restart(7)
    assert taken(schedule, range(8, 22)) == [10, 15, 20]


def test_a_delayed_snapshot_does_not_delay_the_next_ones() -> None:
    assert taken(SnapshotSchedule(RankEnv(), every=5), range(1, 22), busy=range(5, 13)) == [13, 15, 20]


def test_only_rank_0_has_a_clock() -> None:
    assert SnapshotSchedule(RankEnv(job=job(snapshots__every="0")), every=5).time_due
    assert not SnapshotSchedule(RankEnv(job=job(snapshots__every="0"), rank=1), every=5).time_due
    assert not SnapshotSchedule(RankEnv(job=job(snapshots__every="1h")), every=5).time_due
    assert not SnapshotSchedule(RankEnv(), every=5).time_due
    assert SnapshotSchedule(RankEnv(rank=1), every=5).is_due(1, time_due=True)


def test_the_metric_of_the_best_snapshot_is_recognized() -> None:
    schedule = SnapshotSchedule(RankEnv(job=job(snapshots__keep_best="max:top:5")), every=5)
    assert schedule.has_best_metric({"loss": 1.0, "top:5": 0.5})
    assert not schedule.has_best_metric({"loss": 1.0})
    assert not SnapshotSchedule(RankEnv(), every=5).has_best_metric({"loss": 1.0})
