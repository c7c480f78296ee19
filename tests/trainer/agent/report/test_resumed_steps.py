"""Steps that a restart throws away are told once, when the ranks have resumed."""

from __future__ import annotations

from typing import Any

import pytest

from kitjob.record import replace
from kitjob.report import Progress, RankProgress, RecoveryTimings
from kittrain.agent.report.resumed_steps import ResumedSteps


def seen(resumed: ResumedSteps, **progress: Any) -> bool:
    return resumed.add(lambda: RankProgress(**progress))


@pytest.mark.parametrize(
    ("reached", "resumed_from", "text"),
    [
        (312, 300, "resumed at step 300: 12 steps lost"),
        (301, 300, "resumed at step 300: 1 step lost"),
        (40, 0, "resumed at step 0: 40 steps lost"),
        (300, 300, ""),  # drained
        (300, 301, ""),  # a copy in memory was newer than the last report
    ],
)
def test_lost_steps_are_told_once(reached: int, resumed_from: int, text: str) -> None:
    resumed = ResumedSteps()
    former: dict[str, Any] = {"step": reached, "resumed_at": 5.0}
    resumed.restart(resumed.reached(Progress(**former)), Progress(**former))
    assert not seen(resumed, **former), "the former ranks'"
    assert not seen(resumed, step=resumed_from, resumed_from=resumed_from, resumed_at=None), "no step yet"
    now: dict[str, Any] = {"step": resumed_from + 1, "resumed_from": resumed_from, "resumed_at": 9.0}
    assert seen(resumed, **now) == bool(text)
    assert resumed.text == text
    assert not seen(resumed, **now)
    recovery = RecoveryTimings(cause="node 1 is lost", stop=0.1)
    told = resumed.explained(recovery)
    assert told == (replace(recovery, cause=f"node 1 is lost; {text}") if text else recovery)
    resumed.restart(0, Progress(**now))
    assert resumed.explained(recovery) == recovery
    assert resumed.explained(None) is None


def test_without_a_former_start_nothing_is_read() -> None:
    resumed = ResumedSteps()
    resumed.restart(ResumedSteps.reached(Progress()), Progress())
    assert not resumed.add(lambda: pytest.fail("it was read"))


def test_what_only_a_report_knows_is_a_least_number_and_a_warning() -> None:
    resumed = ResumedSteps()
    resumed.restart(0, Progress())
    resumed.remember(312)
    assert seen(resumed, step=301, resumed_from=300, resumed_at=9.0)
    assert resumed.text == resumed.warning == "resumed at step 300: at least 12 steps lost"
    resumed.restart(320, Progress(resumed_at=9.0))
    assert seen(resumed, step=301, resumed_from=300, resumed_at=11.0)
    assert resumed.text == "resumed at step 300: 20 steps lost"
    assert not resumed.warning, "the recovery's cause has it"


def test_a_snapshot_that_is_not_whole_is_the_reason_of_steps_that_are_lost() -> None:
    resumed, why = ResumedSteps(), "no node that is left has 1 of its 3 parts of step 300"
    for reached, step, text in (
        (312, 280, f"resumed at step 280: 32 steps lost, as {why}"),
        (312, 0, f"resumed at step 0: 312 steps lost, as {why}"),
        (312, 312, ""),  # the mirror had a newer one
    ):
        resumed.restart(reached, Progress(resumed_at=5.0))
        seen(resumed, step=step + 1, resumed_from=step, resumed_at=9.0, not_whole=why)
        assert resumed.text == resumed.warning == text
    resumed.restart(320, Progress(resumed_at=9.0))
    assert not resumed.warning
