"""Faults on purpose: which there are, as a table, whom one strikes, and what came of it. Pure.

``targets`` carry them out, ``drill`` decides whom they strike and watches what happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kitctl.facts import Recovery as Details


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault.

    Attributes:
        victim: what it strikes.
        does: in the words of somebody who is asked whether it may be done.
        healthy: what a job that is well shows then.
        right: what it takes on a cluster, as ``kubectl auth can-i`` has it.
        signal: sent within the node, by ``kittrain.fault_injection``; empty: the target takes the node away.
    """

    victim: Literal["rank", "node"]
    does: str
    healthy: str
    right: str
    signal: str = ""


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-rank": Fault(
        victim="rank",
        does="SIGKILL to one rank, as the kernel does when memory runs out",
        healthy="all ranks start again, on the nodes they were on",
        right="get pods/exec",
        signal="KILL",
    ),
    "freeze-rank": Fault(
        victim="rank",
        does="SIGSTOP to one rank, which then hangs as in a broken driver",
        healthy="the hang is noticed, and all ranks start again",
        right="get pods/exec",
        signal="STOP",
    ),
    "kill-agent": Fault(
        victim="node",
        does="SIGKILL to one node's agent, which takes its ranks with it",
        healthy="an elastic job goes on with the other nodes; a node that starts again joins them",
        right="get pods/exec",
        signal="KILL",
    ),
    "kill-node": Fault(
        victim="node",
        does="the end of one node without a warning, as if its machine were lost",
        healthy="an elastic job goes on with the other nodes; a node that starts again joins them",
        right="delete pods",
    ),
    "preempt": Fault(
        victim="node",
        does="SIGTERM to one node, as a cluster does that needs its place",
        healthy="a snapshot is taken before, so no step is lost; then as after kill-node",
        right="delete pods",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One fault, aimed; ``rank`` where a rank is the victim."""

    fault: str
    node: int
    rank: int | None = None

    @property
    def victim(self) -> str:
        """Whom it strikes, in words."""
        return f"node {self.node}" if self.rank is None else f"rank {self.rank} (node {self.node})"

    def command(self, *options: str) -> list[str]:
        """What strikes within the node, for its Python."""
        rank = [] if self.rank is None else ["--rank", str(self.rank)]
        return ["-P", "-m", "kittrain.fault_injection", FAULTS[self.fault].signal, *rank, *options]


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What came of a strike. Times are seconds from the strike on; None: it has not come to that.

    Attributes:
        fault: which one.
        victim: whom it struck, in words.
        time: of the strike, in Unix seconds.
        formed: until a new group was formed.
        first_step: until that group had taken its first step.
        steps_lost: between the last step that was told before and the one that training went on from.
        restarts: nodes that were started again.
        details: where the time went, as the agents tell it.
        phase: of the job, at the last look.
        recovered: whether it has; a job whose script tells no steps, once it has formed a group.
    """

    fault: str
    victim: str
    time: float
    formed: float | None = None
    first_step: float | None = None
    steps_lost: int | None = None
    restarts: int = 0
    details: Details | None = None
    phase: str
    recovered: bool
