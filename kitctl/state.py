"""From facts to what is true of a job: its phase, and what each node and rank is doing. Pure.

``derive`` turns what a target knows into a ``JobState``, which is what status, list and wait show. Nothing here asks
anybody anything.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kitctl.facts import JobFacts, NodeFacts, PastFailure, Progress, Recovery, Report, Termination

Phase = Literal[
    "Pending",  # accepted; no node runs yet
    "Starting",  # nodes run, and have not formed their first group
    "Running",  # every node of the current group is alive: ranks are training
    "Recovering",  # a node was lost or ranks failed: a new group is forming
    "Suspended",  # no node runs, and none is to: resume starts it again from its last snapshot
    "Succeeded",
    "Failed",
    "Cancelled",
]
END_PHASES = frozenset({"Succeeded", "Failed", "Cancelled"})


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``status``."""

    index: int
    state: str
    ranks: str
    pod: str
    host: str
    restarts: int
    since: float | None
    reason: str


class JobState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a person (or ``-o json``) is told about a job."""

    name: str
    namespace: str
    target: str
    kind: str
    phase: Phase
    reason: str
    nodes: str
    ready: int
    world_size: int
    restarts: int
    created: float
    ended: float | None
    progress: Progress
    failure: Termination | None
    places: tuple[NodeState, ...]
    snapshots: str
    slow: dict[str, float] = {}
    last_recovery: Recovery | None = None
    failures: tuple[PastFailure, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the job has ended, one way or another."""
        return self.phase in END_PHASES


def derive(facts: JobFacts) -> JobState:
    """Turn facts into state: the one place where a phase is decided."""
    report = facts.report or Report()
    return JobState(
        name=facts.name,
        namespace=facts.namespace,
        target=facts.target,
        kind=facts.kind,
        phase=(phase := _phase(facts)),
        reason=_reason(facts, phase),
        nodes=facts.nodes,
        ready=sum(node.alive for node in facts.places),
        world_size=report.world_size if phase == "Running" else 0,
        restarts=sum(max(node.attempts - 1, 0) for node in facts.places),
        created=facts.created,
        ended=facts.ended,
        progress=report.progress,
        failure=facts.failure,
        places=tuple(_node(node, report, phase, told=facts.reports) for node in facts.places),
        snapshots=facts.snapshots,
        slow=report.slow if phase == "Running" else {},
        last_recovery=report.last_recovery,
        failures=report.failures,
    )


def _phase(facts: JobFacts) -> Phase:
    present = [node for node in facts.places if node.alive or node.exit_code == 0]
    if facts.end:
        return facts.end
    if not present:
        return "Suspended" if facts.suspended else "Recovering" if _begun(facts) else "Pending"
    if not facts.reports and len(present) >= facts.wanted:
        return "Running"  # as far as anybody can tell
    if facts.report is None or not facts.report.formed:
        return "Recovering" if any(node.attempts > 1 for node in facts.places) else "Starting"
    return "Running" if _whole(facts.report, present) else "Recovering"


def _begun(facts: JobFacts) -> bool:
    """Whether any node has run, or any group has formed (a node that was lost need not have left a trace)."""
    return any(node.attempts for node in facts.places) or bool(facts.report and facts.report.formed)


def _whole(report: Report, present: list[NodeFacts]) -> bool:
    """Whether every member of the last group that formed is still the process that joined it, or is done."""
    joined = {str(node.index) for node in present if not node.alive or _is_seated(node, report)}
    return not report.forming and report.nodes.keys() <= joined


def _is_seated(node: NodeFacts, report: Report) -> bool:
    """Whether a node is the process that took its seat. Both times are by its own machine's clock."""
    place = report.nodes.get(str(node.index))
    return (node.started or 0.0) <= (place.joined if place and place.joined else report.formed)


def _reason(facts: JobFacts, phase: Phase) -> str:
    if phase == "Failed" and facts.failure:
        return _told(facts.failure)
    if phase in END_PHASES or phase == "Running":
        return ""
    notes = (node.note for node in facts.places if node.note and not node.alive)
    return next(notes, facts.note)


def _told(failure: Termination) -> str:
    """Why a job has failed, with the node that did."""
    return failure.reason if failure.node is None else f"node {failure.node}: {failure.reason}"


def _node(node: NodeFacts, report: Report, phase: Phase, *, told: bool) -> NodeState:
    place = report.nodes.get(str(node.index)) if phase == "Running" else None
    first, last = place.ranks if place else (0, 0)
    return NodeState(
        index=node.index,
        state=_node_state(node, placed=place is not None or not told, phase=phase),
        ranks="" if place is None else f"{first}" if first == last else f"{first}-{last}",
        pod=node.pod,
        host=place.host if place else node.host,
        restarts=max(node.attempts - 1, 0),
        since=node.started if node.alive else node.ended,
        reason=_node_reason(node, phase),
    )


def _node_reason(node: NodeFacts, phase: Phase) -> str:
    """Why it is as it is; of a failed job, whose reason is told above all nodes, no more than its part in it."""
    told = node.termination
    if phase != "Failed" or not told or told.outcome != "fatal" or told.node is None or node.alive:
        before = f"before: {node.before}" if node.before and node.alive else ""
        return node.note or before or (told.reason if told else "")
    if told.node != node.index:
        return f"ended with node {told.node}"
    return "failed" if told.rank is None else f"rank {told.rank} failed"


def _node_state(node: NodeFacts, *, placed: bool, phase: Phase) -> str:
    if node.alive:
        return "Running" if placed else "Joining"
    if node.exit_code == 0:
        return "Done"
    if node.attempts == 0:
        return "Absent" if phase in END_PHASES or phase == "Suspended" else "Pending"
    return {"drained": "Drained", "fatal": "Failed"}.get(
        node.termination.outcome if node.termination else "", "Stopped" if phase in END_PHASES else "Lost"
    )
