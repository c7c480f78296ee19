"""The timings of a recovery's parts."""

from __future__ import annotations

import time

import pytest

from kitjob.report import RecoveryTimings
from kittrain.agent.report.recovery import RecoveryClock
from kittrain.system.heartbeat import Phase

PHASE_TIMES = {Phase.JOINING: 13.0, Phase.PREPARING: 13.5, Phase.DATA: 14.5, Phase.SYNCING: 16.5}
MOMENTS = dict.fromkeys(Phase, 0.0) | PHASE_TIMES


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_recovery_is_complete_with_the_first_step_and_its_parts_add_up(clock: list[float]) -> None:
    recovery = RecoveryClock()
    recovery.update(MOMENTS.__getitem__)
    assert recovery.complete is None, "the first round is no recovery"
    recovery.begin("node 1 is lost")
    recovery.begin("the ranks of node 0 have failed")  # a consequence
    clock[0] = 11.0
    recovery.mark("stop")
    clock[0] = 11.5
    recovery.mark("stop")  # already stopped: the first time counts
    clock[0] = 12.0
    recovery.mark("form")
    recovery.update(lambda phase: 0.0 if phase is Phase.SYNCING else MOMENTS[phase])
    assert recovery.complete is None
    recovery.update(MOMENTS.__getitem__)
    parts = {"stop": 1.0, "form": 1.0, "start": 1.0, "join": 0.5, "restore": 1.0, "first_step": 2.0}
    assert recovery.complete == RecoveryTimings(cause="node 1 is lost", **parts)


def test_a_round_that_ends_before_its_first_step_starts_another_recovery(clock: list[float]) -> None:
    recovery = RecoveryClock()
    recovery.begin("node 1 is lost")
    recovery.mark("form")
    clock[0] = 12.0
    recovery.begin("node 2 is lost")
    recovery.update(MOMENTS.__getitem__)
    assert recovery.complete
    assert recovery.complete.cause == "node 2 is lost"
