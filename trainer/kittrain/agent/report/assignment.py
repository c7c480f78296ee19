"""A node's part in a round, for the report."""

from __future__ import annotations

import time
from typing import Any

from kittrain.job.env import NodeEnv
from kittrain.outcome.failures import BRIEF


def assignment(node: NodeEnv, group_rank: int, ranks: tuple[int, int]) -> dict[str, Any]:
    """A node's part, as JSON; short, since a ConfigMap holds at most 1 MiB for all nodes.

    ``joined`` is by the node's own clock, in Unix seconds. ``agent_runs`` counts its containers, as far as they left
    log copies, ``agent_restarts`` the restarts in this one, and ``restart_cause`` is that of the last; the latter two
    are left out before the first.

    Args:
        node: the node's environment.
        group_rank: in this round.
        ranks: first and last.
    """
    restarts = {"agent_restarts": node.agent_restarts, "restart_cause": node.restart_cause[:BRIEF]}
    return {
        "index": node.node_index,
        "pod": node.pod,
        "host": node.host,
        "group_rank": group_rank,
        "ranks": ranks,
        "joined": time.time(),
        "agent_runs": node.agent_runs,
        **(restarts if node.agent_restarts else {}),
    }
