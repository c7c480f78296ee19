"""A node's entry in the report."""

from __future__ import annotations

from kittrain.agent.report.assignment import assignment
from kittrain.job.env import NodeEnv
from kittrain.outcome.failures import BRIEF


def test_restarts_are_reported_with_a_short_cause() -> None:
    entry = assignment(NodeEnv(agent_restarts=2, restart_cause="x" * 5000), 0, (0, 1))
    assert (entry.agent_restarts, len(entry.restart_cause)) == (2, BRIEF)
