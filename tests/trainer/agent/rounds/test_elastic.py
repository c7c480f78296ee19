"""How ranks are stopped, and which of them had left before."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kittrain.agent.processes.ranks import RankProcesses
from kittrain.agent.report.departures import Departures
from kittrain.agent.rounds.elastic import NodeAgent
from kittrain.agent.rounds.stop_plan import StopPlan


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
    agent._stop(StopPlan(60.0, "none"))
    assert agent._reporter.departures.left[0] == 2

    agent._reporter.departures = Departures(round=1, size=2)
    agent._stop(StopPlan(60.0, "none"))
    assert agent._reporter.departures.left is None, "what was told to stop has not left"
