"""A node's part in a round, for the report."""

from __future__ import annotations

import os
import time

from kitjob.report import NodeAssignment
from kittrain.job.env import NodeEnv
from kittrain.outcome.failures import BRIEF


def assignment(node: NodeEnv, group_rank: int, ranks: tuple[int, int]) -> NodeAssignment:
    """A node's part.

    Args:
        node: the node's environment.
        group_rank: in this round.
        ranks: first and last.
    """
    return NodeAssignment(
        pod=node.pod,
        host=node.host,
        pid=os.getpid(),
        group_rank=group_rank,
        ranks=ranks,
        joined=time.time(),
        agent_runs=node.agent_runs,
        agent_restarts=node.agent_restarts,
        restart_cause=node.restart_cause[:BRIEF],
    )
