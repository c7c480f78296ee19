"""The faults that kitctl can inject, as a table; one fault with its target; the result of one. Pure.

``targets`` inject them. ``drill`` selects the target and observes the recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from kitctl.state.phase import Phase
from kitjob.report import RecoveryTimings


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault.

    Attributes:
        scope: what it hits.
        description: what it does, for the confirmation prompt.
        expected: what a healthy job does next.
        permission: the Kubernetes permission it needs, as ``kubectl auth can-i`` takes it.
        signal: sent inside the node, by ``kittrain.agent.fault_injection``; empty: the target removes the node.
    """

    scope: Literal["rank", "node"]
    description: str
    expected: str
    permission: str
    signal: str = ""


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-rank": Fault(
        scope="rank",
        description="SIGKILL to one rank, as the kernel does when memory runs out",
        expected="all ranks restart on the same nodes, or with policy.survivors: live only this one",
        permission="get pods/exec",
        signal="KILL",
    ),
    "freeze-rank": Fault(
        scope="rank",
        description="SIGSTOP to one rank, which then hangs as with a broken driver",
        expected="the hang is detected, and all ranks restart",
        permission="get pods/exec",
        signal="STOP",
    ),
    "kill-agent": Fault(
        scope="node",
        description="SIGKILL to one node's agent, which also ends its ranks",
        expected="the agent is started again at once; all ranks restart, or with policy.survivors: live only its own",
        permission="get pods/exec",
        signal="KILL",
    ),
    "kill-node": Fault(
        scope="node",
        description="one node ends without warning, as if its machine failed",
        expected="an elastic job continues with the other nodes; a node that restarts joins them",
        permission="delete pods",
    ),
    "preempt": Fault(
        scope="node",
        description="SIGTERM to one node, as in a preemption",
        expected="a snapshot is taken first, so no step is lost; then as with kill-node",
        permission="delete pods",
    ),
}


@dataclass(frozen=True, kw_only=True)
class FaultInjection:
    """One fault and its target; ``rank`` is set where the fault hits a rank."""

    fault: str
    node: int
    rank: int | None = None

    @property
    def target(self) -> str:
        """``rank 2 (node 1)`` or ``node 1``."""
        return f"node {self.node}" if self.rank is None else f"rank {self.rank} (node {self.node})"

    def command(self, *options: str) -> list[str]:
        """The module that injects it on the node, and its arguments."""
        rank = [] if self.rank is None else ["--rank", str(self.rank)]
        return ["kittrain.agent.fault_injection", FAULTS[self.fault].signal, *rank, *options]


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one injected fault; durations count from the injection, null: not reached."""

    fault: str
    """Which fault, as in ``--fault``."""
    target: str
    """What it hit: ``node 1``, or ``rank 2 (node 1)``."""
    time: float
    """When it was injected."""
    formed: float | None = None
    """Seconds until a new group of ranks formed."""
    first_step: float | None = None
    """Seconds until that group took its first step."""
    steps_lost: int | None = None
    """Steps between the last reported one and the one that training resumed from."""
    restarts: int = 0
    """Restarts of nodes, or of the ranks on nodes that stay."""
    timings: RecoveryTimings | None = None
    """The parts of the recovery, as the agents report them."""
    phase: Phase
    """Phase of the job, when last seen."""
    recovered: bool
    """Whether the job recovered within the timeout; one whose script reports no steps has once a new group formed."""
