"""Steps and speed of a script with its own loop."""

from __future__ import annotations

from typing import Any

import pytest

from kitjob.report import Progress
from kittrain.agent.hooks.script_progress import WINDOW, ScriptProgress, alone, trains_alone
from kittrain.system.exchanges import MANY


def test_there_is_no_progress_before_the_first_step() -> None:
    progress = ScriptProgress()
    progress.add(0, 1.0, 1000.0)
    assert progress.facts == {}
    progress.add(2, 2.0, 1001.0)
    assert progress.facts == {"step": 2, "steps_per_second": 0.0, "resumed_at": 1001.0}
    assert Progress(**progress.facts).of_own_loop
    assert not Progress(step=2).of_own_loop


def test_the_speed_is_that_of_the_last_half_minute() -> None:
    progress = ScriptProgress()
    for tick in range(1, 401):  # 4 samples per second; 8 steps per second, then 2
        now = tick / 4
        progress.add(2 * tick if tick <= 200 else 400 + (tick - 200) // 2, now, 1000 + now)
    assert progress.facts["step"] == 500
    assert progress.facts["steps_per_second"] == pytest.approx(2, abs=0.05)
    assert len(progress._samples) <= 2 * WINDOW + 2


def test_the_speed_of_a_stopped_script_decreases() -> None:
    progress = ScriptProgress()
    for second in range(11):
        progress.add(1 + second, float(second), 0.0)
    for second in range(11, 60):
        progress.add(11, float(second), 0.0)
    assert progress.facts["steps_per_second"] == 0.0


@pytest.mark.parametrize(
    ("training", "group", "warning"),
    [
        (4, 0, "4 ranks train, without a process group: each has a model of its own"),
        (4, 2, "4 ranks train, the largest process group has 2 of them: each"),
        (4, 4, "4 ranks train in a process group, and exchange no gradients: each"),
        (1, 0, ""),  # the others may wait for it
        (0, 4, ""),
    ],
)
def test_ranks_that_train_independently_are_a_warning(training: int, group: int, warning: str) -> None:
    found = alone(training=training, group=group, separate=0, world=4)
    assert found.startswith(warning)
    assert bool(found) == bool(warning)


ALONE = {"updates": 2000, "met": 0, "group": 4, "world": 4, "ended": False}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, True),
        ({"met": 1}, True),  # a metric after an epoch
        ({"met": 2}, False),  # averages now and then
        ({"met": MANY}, False),
        ({"world": 1, "group": 1}, False),
        ({"updates": 0, "group": 0}, False),  # it may do anything
        ({"updates": 1, "group": 0}, True),
        ({"updates": 1, "group": 0, "met": MANY}, False),
        ({"updates": 1, "group": 2, "met": 1}, True),
        ({"updates": 999}, False),  # it may average later
        ({"updates": 999, "ended": True}, True),
        ({"updates": 1, "ended": True}, False),
    ],
)
def test_a_rank_that_meets_no_other_trains_alone(changed: dict[str, Any], found: bool) -> None:  # noqa: FBT001
    assert trains_alone(**(ALONE | changed)) == found
