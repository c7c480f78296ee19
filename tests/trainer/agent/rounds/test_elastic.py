"""How long ranks get from SIGTERM to SIGKILL: the grace period, unless their peers are lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kittrain.agent.rounds.elastic import LOST_STOP_TIMEOUT, NodeAgent
from kittrain.job.env import WORKER_DRAINED

GRACE = 25.0


@pytest.mark.parametrize(
    ("draining", "codes", "lost", "seconds"),
    [
        (False, [None, None], False, GRACE),  # the round ends by agreement: another node joins
        (True, [None, None], True, GRACE),
        (False, [None, WORKER_DRAINED], True, GRACE),
        (False, [None, None], True, LOST_STOP_TIMEOUT),  # they may hang in a collective
        (False, [1, None], True, LOST_STOP_TIMEOUT),
    ],
)
def test_ranks_that_stop_by_agreement_have_the_grace_period_to_save(
    *, draining: bool, codes: list[int | None], lost: bool, seconds: float
) -> None:
    given: list[float] = []
    agent: Any = NodeAgent.__new__(NodeAgent)
    agent._watch = SimpleNamespace(finish=lambda: None)
    agent._history = SimpleNamespace(ranks_end=lambda *_: None)
    agent._handler = SimpleNamespace(reason="", lost=lost)
    agent._drain = SimpleNamespace(requested=draining)
    agent._ranks = SimpleNamespace(exit_codes=lambda: codes, stop=given.append)
    agent._logs = SimpleNamespace(finish=lambda: None)
    agent._stop_timeout = GRACE
    agent.shutdown()
    assert given == [seconds]
