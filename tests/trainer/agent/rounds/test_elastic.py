"""How long ranks get from SIGTERM to SIGKILL: the grace period, unless their peers are lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kittrain.agent.rounds.elastic import LOST_LOOP_TIMEOUT, LOST_STOP_TIMEOUT, NodeAgent
from kittrain.job.env import WORKER_DRAINED

GRACE = 25.0


@pytest.mark.parametrize(
    ("drained_for", "codes", "lost", "steps", "seconds"),
    [
        (None, [None, None], False, 0, GRACE),  # the round ends by agreement: another node joins
        (0.0, [None, None], True, 9, GRACE),
        (20.0, [None, None], True, 9, 5.0),  # after which kubelet kills all
        (30.0, [None, None], True, 9, 0.0),
        (None, [None, WORKER_DRAINED], True, 9, GRACE),
        (None, [None, None], True, 0, LOST_STOP_TIMEOUT),  # a script's handler
        (None, [None, None], True, 9, LOST_LOOP_TIMEOUT),  # the library's loop hangs in a collective
        (None, [1, None], True, 9, LOST_LOOP_TIMEOUT),
    ],
)
def test_ranks_that_stop_by_agreement_have_the_grace_period_to_save(
    *, drained_for: float | None, codes: list[int | None], lost: bool, steps: int, seconds: float
) -> None:
    given: list[float] = []
    agent: Any = NodeAgent.__new__(NodeAgent)
    agent._watch = SimpleNamespace(finish=lambda: None, steps=steps)
    agent._history = SimpleNamespace(ranks_end=lambda *_: None)
    agent._handler = SimpleNamespace(reason="", lost=lost)
    agent._kept = None
    agent._drain = SimpleNamespace(requested=drained_for is not None, age=lambda: drained_for or 0.0)
    agent._ranks = SimpleNamespace(exit_codes=lambda: codes, exiting=frozenset(), stop=given.append)
    agent._logs = SimpleNamespace(finish=lambda: None)
    agent._stop_timeout = GRACE
    agent.shutdown()
    assert given == [seconds]
