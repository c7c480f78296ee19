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
        scope: what it hits; ``mirror``: the store that its snapshots are copied to, as the node that uploads sees it.
        description: what it does, for the confirmation prompt.
        expected: what a healthy job does next.
        permission: the Kubernetes permission it needs, as ``kubectl auth can-i`` takes it.
        inside: what ``kittrain.agent.fault_injection`` does inside the node; empty: the target removes the node.
    """

    scope: Literal["rank", "node", "mirror"]
    description: str
    expected: str
    permission: str
    inside: str = ""


MIRRORED_LATER: Final = "training goes on, status and why tell it, and what is missing is uploaded afterwards"
FAULTS: Final[Mapping[str, Fault]] = {
    "kill-rank": Fault(
        scope="rank",
        description="SIGKILL to one rank, as the kernel does when memory runs out",
        expected="all ranks restart on the same nodes, or with policy.survivors: live only this one",
        permission="get pods/exec",
        inside="KILL",
    ),
    "freeze-rank": Fault(
        scope="rank",
        description="SIGSTOP to one rank, which then hangs as with a broken driver",
        expected="the hang is detected, and all ranks restart",
        permission="get pods/exec",
        inside="STOP",
    ),
    "kill-agent": Fault(
        scope="node",
        description="SIGKILL to one node's agent, which also ends its ranks",
        expected="the agent is started again at once; all ranks restart, or with policy.survivors: live only its own",
        permission="get pods/exec",
        inside="KILL",
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
    "damage-part": Fault(
        scope="rank",
        description="a bit of a rank's part of the newest snapshot is flipped, and the rank killed, so that it is read",
        expected="the part is set aside and its copy on another node is used: no more steps are lost than by kill-rank",
        permission="get pods/exec",
        inside="DAMAGE",
    ),
    "mirror-unavailable": Fault(
        scope="mirror",
        description="the mirror's store answers 503 for a while",
        expected=MIRRORED_LATER,
        permission="get pods/exec",
        inside="UNAVAILABLE",
    ),
    "mirror-denied": Fault(
        scope="mirror",
        description="the mirror's store refuses the credentials (403) for a while",
        expected=MIRRORED_LATER,
        permission="get pods/exec",
        inside="DENIED",
    ),
    "mirror-cut-off": Fault(
        scope="mirror",
        description="the mirror's store does not answer at all for a while",
        expected=MIRRORED_LATER,
        permission="get pods/exec",
        inside="CUT",
    ),
}


@dataclass(frozen=True, kw_only=True)
class FaultInjection:
    """One fault and its target; ``rank`` is set where the fault hits a rank, ``seconds`` where it lasts so long."""

    fault: str
    node: int
    rank: int | None = None
    seconds: float | None = None

    @property
    def target(self) -> str:
        """``rank 2 (node 1)``, ``node 1`` or ``the mirror of node 0``."""
        if FAULTS[self.fault].scope == "mirror":
            return f"the mirror of node {self.node}"
        return f"node {self.node}" if self.rank is None else f"rank {self.rank} (node {self.node})"

    def command(self, *options: str) -> list[str]:
        """The module that injects it on the node, and its arguments."""
        rank = [] if self.rank is None else ["--rank", str(self.rank)]
        lasting = [] if self.seconds is None else ["--seconds", f"{self.seconds:g}"]
        return ["kittrain.agent.fault_injection", FAULTS[self.fault].inside, *rank, *lasting, *options]


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one injected fault; durations count from the injection, null: not reached."""

    fault: str
    """Which fault, as in ``--fault``."""
    target: str
    """What it hit: ``node 1``, ``rank 2 (node 1)`` or ``the mirror of node 0``."""
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
    told: float | None = None
    """Of a fault of the mirror: seconds until the job's status told it."""
    caught_up: float | None = None
    """Of a fault of the mirror: seconds from its end until the newest snapshot of that time was there, or a later."""
    phase: Phase
    """Phase of the job, when last seen."""
    recovered: bool
    """Whether the job recovered within the timeout; one whose script reports no steps has once a new group formed. Of a
    fault of the mirror: whether it trained on, and caught up."""
