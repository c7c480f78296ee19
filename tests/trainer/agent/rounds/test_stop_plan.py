"""How long ranks have when they are stopped, and which of them live on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kittrain.agent.rounds.elastic import NodeAgent
from kittrain.agent.rounds.stop_plan import LOST_LOOP_TIMEOUT, LOST_STOP_TIMEOUT, LivesOn, of_ended, of_failed
from kittrain.job.env import WORKER_DRAINED

LEFT = 25.0


@pytest.mark.parametrize("of_library", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("drained", [True, False])
def test_ranks_that_stop_by_agreement_have_the_time_that_is_left(
    *, drained: bool, lost: bool, waiting: bool, goes_on: bool, of_library: bool
) -> None:
    plan = of_ended(drained=drained, lost=lost, waiting=waiting, goes_on=goes_on, of_library=of_library, time_left=LEFT)
    if drained or not lost:
        assert plan.timeout == LEFT
    else:  # the library's ranks hang in a collective; a script's handler may save
        assert plan.timeout == (LOST_LOOP_TIMEOUT if of_library else LOST_STOP_TIMEOUT)
    expected: LivesOn = "none"
    if not drained and (lost or waiting):
        expected = "at once"  # those that wait have agreed already: the hub's word on it is on its way
    elif not drained and goes_on:
        expected = "after a step"
    assert plan.lives_on == expected


@pytest.mark.parametrize(
    ("agreed", "drained", "lives_on"),
    [(False, False, "at once"), (True, False, "none"), (False, True, "none"), (True, True, "none")],
)
def test_ranks_live_on_without_one_that_has_failed(*, agreed: bool, drained: bool, lives_on: str) -> None:
    assert of_failed(agreed=agreed, drained=drained) == (LOST_STOP_TIMEOUT, lives_on)


@pytest.mark.parametrize(
    ("drained_for", "codes", "lost", "seconds"),
    [
        (None, [None, None], False, LEFT),  # the round ends by agreement: another node joins
        (0.0, [None, None], True, LEFT),
        (20.0, [None, None], True, 5.0),  # after which kubelet kills all
        (30.0, [None, None], True, 0.0),
        (None, [None, WORKER_DRAINED], True, LEFT),
        (None, [1, None], True, LOST_LOOP_TIMEOUT),
    ],
)
def test_an_agent_gives_its_ranks_what_is_left_of_the_grace_period(
    *, drained_for: float | None, codes: list[int | None], lost: bool, seconds: float
) -> None:
    given: list[float] = []
    agent: Any = NodeAgent.__new__(NodeAgent)
    agent._watch = SimpleNamespace(finish=lambda: None, steps=9)
    agent._history = SimpleNamespace(ranks_end=lambda *_: None)
    agent._handler = SimpleNamespace(reason="", lost=lost)
    agent._kept = None
    agent._drain = SimpleNamespace(requested=drained_for is not None, age=lambda: drained_for or 0.0)
    agent._ranks = SimpleNamespace(exit_codes=lambda: codes, gone=frozenset(), stop=given.append)
    agent._logs = SimpleNamespace(finish=lambda: None)
    agent._stop_timeout = LEFT
    agent.shutdown()
    assert given == [seconds]
