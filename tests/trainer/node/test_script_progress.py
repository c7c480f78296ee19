"""Steps and speed of a script with its own loop."""

from __future__ import annotations

import pytest

from kittrain.node.script_progress import WINDOW, ScriptProgress, without_group


def test_there_is_no_progress_before_the_first_step() -> None:
    progress = ScriptProgress()
    progress.add(0, 1.0, 1000.0)
    assert progress.facts == {}
    progress.add(2, 2.0, 1001.0)
    assert progress.facts == {"step": 2, "steps_per_second": 0.0, "resumed_at": 1001.0}


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
    ("steps", "group", "world", "warning"),
    [
        (5, 0, 4, "4 ranks train, without a process group: each has a model of its own"),
        (5, 2, 4, "4 ranks train, the largest process group has 2 of them: each"),
        (5, 4, 4, ""),
        (0, 0, 4, ""),  # they may do anything
        (5, 0, 1, ""),
    ],
)
def test_ranks_that_train_independently_are_a_warning(steps: int, group: int, world: int, warning: str) -> None:
    found = without_group(steps=steps, group=group, separate=0, world=world)
    assert found.startswith(warning)
    assert bool(found) == bool(warning)
