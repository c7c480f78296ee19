"""One warning if the grace period is too short for a step and a snapshot."""

from __future__ import annotations

import pytest
import torch

from kittrain.job.env import RankEnv
from kittrain.rank.training.grace_period import GracePeriodCheck
from kittrain.rank.world.distributed import World


def measured(grace_seconds: int | None, steps: list[float], snapshots: list[float]) -> None:
    grace = GracePeriodCheck(World(env=RankEnv(grace_seconds=grace_seconds), device=torch.device("cpu")))
    for moment in steps:
        grace.step(moment)
    for seconds in snapshots:
        grace.snapshot(seconds)


def test_one_warning_if_it_is_too_short(capsys: pytest.CaptureFixture[str]) -> None:
    measured(30, [0.0, 10.0, 12.0], [1.0, 21.0, 22.0])
    (line,) = capsys.readouterr().out.splitlines()
    assert "30 s is too short for a step (10.0 s) and a snapshot (21.0 s)" in line


@pytest.mark.parametrize(
    ("grace", "steps", "snapshots"),
    [
        (30, [0.0, 10.0], [20.0]),
        (30, [*map(float, range(500)), 600.0], [20.0]),  # one slow step of 500
        (None, [0.0, 10.0], [1000.0]),
        (30, [0.0], [1000.0]),
    ],
)
def test_no_warning_if_it_suffices_or_is_unknown(
    grace: int | None, steps: list[float], snapshots: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    measured(grace, steps, snapshots)
    assert not capsys.readouterr().out
