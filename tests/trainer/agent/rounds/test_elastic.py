"""How ranks are stopped: how long they get from SIGTERM to SIGKILL, and which of them had left before."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kittrain.agent.processes.ranks import RankProcesses
from kittrain.agent.report.departures import Departures
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
    agent._ranks = SimpleNamespace(exit_codes=lambda: codes, gone=frozenset(), stop=given.append)
    agent._logs = SimpleNamespace(finish=lambda: None)
    agent._stop_timeout = GRACE
    agent.shutdown()
    assert given == [seconds]


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="waits for a zombie")
def test_a_rank_that_ended_since_its_exit_code_was_read_has_left_by_itself() -> None:
    """As where the others lost it at the same moment, and their loss was seen first."""
    agent: Any = NodeAgent.__new__(NodeAgent)
    agent._kept = None
    agent._drain = SimpleNamespace(requested=False)
    agent._files = [SimpleNamespace(rank=rank) for rank in (2, 3)]
    agent._reporter = SimpleNamespace(departures=Departures(round=1, size=2))
    agent._logs = SimpleNamespace(finish=lambda: None)
    agent._ranks = RankProcesses()
    for script in ("import sys; sys.stdin.read()", "import time; time.sleep(3600)"):
        agent._ranks.add(subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, process_group=0))
    assert agent._ranks.exit_codes() == [None, None]
    leaver = agent._ranks._processes[0]
    leaver.stdin.close()
    os.waitid(os.P_PID, leaver.pid, os.WEXITED | os.WNOWAIT)
    agent._stop(60.0, all_of_them=True)
    assert agent._reporter.departures.left[0] == 2

    agent._reporter.departures = Departures(round=1, size=2)
    agent._stop(60.0, all_of_them=True)
    assert agent._reporter.departures.left is None, "what was told to stop has not left"
