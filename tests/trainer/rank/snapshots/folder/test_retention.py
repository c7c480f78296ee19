"""Which snapshots are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kitjob.job_keys import JobKeys
from kitjob.sections import Snapshots
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import Manifest
from tests.trainer.saved import manifest
from tests.trainer.settings import job

VALUES = [math.nan, 0.9, math.inf, -math.inf, 0.1]  # of a metric


def at(step: int, **metrics: float) -> Manifest:
    return replace(manifest(1), step=step, metrics=metrics)


def kept(env: RankEnv, snapshots: list[Manifest]) -> list[int]:
    """The steps of the snapshots that are kept if each is published in turn, as a run does."""
    there: list[Manifest] = []
    for one in snapshots:
        there.append(one)
        expired = Retention(env).expired(there)
        there = [each for each in there if each not in expired]
    return [one.step for one in there]


def test_the_last_few_are_kept() -> None:
    assert kept(RankEnv(job=job(snapshots__keep=2)), [at(step) for step in (10, 20, 30, 40)]) == [30, 40]


def test_the_first_after_each_multiple_is_kept_forever() -> None:
    env = RankEnv(job=job(snapshots__keep=1, snapshots__keep_every=100))
    assert kept(env, [at(step) for step in (40, 80, 120, 160, 200, 240, 450, 470)]) == [120, 200, 450, 470]


@pytest.mark.parametrize(("best", "steps"), [("max:accuracy", [20, 60]), ("min:loss", [40, 60])])
def test_the_best_is_kept(best: str, steps: list[int]) -> None:
    env = RankEnv(job=job(snapshots__keep=1, snapshots__keep_best=best))
    measured = [
        at(10, accuracy=0.1, loss=3.0),
        at(20, accuracy=0.9, loss=2.0),
        at(30),
        at(40, accuracy=0.8, loss=1.0),
        at(50, accuracy=math.nan, loss=math.nan),
        at(55, accuracy=math.inf, loss=-math.inf),
        at(60),
    ]
    assert kept(env, measured) == steps


def test_milestones_of_older_generations_count() -> None:
    env = RankEnv(job=job(snapshots__keep=1, snapshots__keep_every=100))
    older, newer = manifest(1, 1), manifest(1, 2)
    run = [replace(older, step=100), replace(older, step=150), replace(newer, step=160), replace(newer, step=210)]
    assert kept(env, run) == [100, 210]


@pytest.mark.parametrize(
    "env",
    [{}, {"keep_every": 100}, {"keep_best": "max:accuracy"}, {"keep_best": "min:accuracy"}],
    ids=str,
)
def test_the_last_finite_one_is_kept_whatever_else_is(env: dict[str, Any]) -> None:
    finite = [at(10), at(20, accuracy=0.5), at(30)]
    measured = [at(40 + 10 * number, accuracy=value) for number, value in enumerate(VALUES)]
    broken = [replace(one, not_finite="the loss is nan") for one in measured]
    assert kept(RankEnv(job=JobKeys(snapshots=Snapshots(keep=2, **env))), finite + broken)[-3:] == [30, 70, 80]
    assert kept(RankEnv(job=JobKeys(snapshots=Snapshots(keep=2, **env))), [*finite, *broken, at(90), at(91)])[-2:] == [
        90,
        91,
    ]
    assert 30 not in kept(RankEnv(job=JobKeys(snapshots=Snapshots(keep=2, **env))), [*finite, *broken, at(90), at(91)])


def test_memory_keeps_no_more_than_a_run_may_resume_from() -> None:
    env = RankEnv(job=job(snapshots__keep=3, snapshots__keep_every=10, snapshots__keep_best="max:accuracy"))
    run = [at(10, accuracy=0.9), at(20, accuracy=0.5), replace(at(30), not_finite="the loss is nan")]
    assert [one.step for one in Retention(env, least=True).expired(run)] == [10]
