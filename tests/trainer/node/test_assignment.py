"""What a node tells the report of itself."""

from __future__ import annotations

from kittrain.env import NodeEnv
from kittrain.node.assignment import assignment
from kittrain.outcome.failures import BRIEF


def test_restarts_are_told_once_there_are_any_in_short() -> None:
    assert assignment(NodeEnv(), 0, (0, 1)).keys().isdisjoint({"agent_restarts", "restart_cause"})
    told = assignment(NodeEnv(agent_restarts=2, restart_cause="x" * 5000), 0, (0, 1))
    assert (told["agent_restarts"], len(told["restart_cause"])) == (2, BRIEF)
