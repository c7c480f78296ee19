"""Derive the state of a job from facts: its phase, and the state of each node. Pure.

``derive`` turns the facts of a target into a ``JobState``, which status, list and wait show.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kitctl.base import printable
from kitctl.base.quantity import duration
from kitctl.state.facts import OF_NODES, JobFacts, NodeFacts, QueuePosition
from kitjob.report import (
    LAST_LINE,
    CopiesReport,
    MirrorReport,
    NodeAssignment,
    PastFailure,
    Progress,
    RecoveryTimings,
    Report,
    Standstill,
    Termination,
    Trend,
)

Phase = Literal[
    "Pending",  # accepted; no node runs yet, or again, since it waits in a queue
    "Starting",  # nodes run, but have not formed their first group
    "Running",  # every node of the current group is alive: ranks train
    "Recovering",  # a node was lost or ranks failed; a new group forms
    "Suspended",  # stopped by the user; resume continues from the last snapshot
    "Succeeded",
    "Failed",
    "Cancelled",
]
TERMINAL_PHASES = frozenset({"Succeeded", "Failed", "Cancelled"})
BRIEF_REASON: Final = 160  # characters
UP_FOR: Final = 45.0  # seconds that node 0 has to run for others to reach it


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a job: one pod, or one process group on this machine."""

    index: int
    """Index of the node, from 0."""
    state: str
    """Pending, Joining, Running, Spare, Done, Drained, Failed, Lost, Stopped or Absent."""
    ranks: tuple[int, ...]
    """The ranks that run on it now."""
    pod: str
    """Name of the pod."""
    host: str
    """The machine that it runs on. Empty: not scheduled yet."""
    restarts: int
    """How often it was restarted."""
    since: float | None
    """When it started, or ended."""
    reason: str
    """Why it is in this state. Empty: nothing to explain."""


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """What ``status`` and ``list`` show of a job."""

    name: str
    """Name of the job."""
    namespace: str
    """Namespace that it runs in."""
    target: str
    """Where it runs: ``local``, or the cluster's name in the kubeconfig."""
    job_kind: str
    """What runs it: IndexedJob, TrainJob, JobSet, PyTorchJob or processes."""
    phase: Phase
    """Pending, Starting, Running, Recovering, Suspended, Succeeded, Failed or Cancelled."""
    reason: str
    """Why it is in this phase. Empty: nothing to explain."""
    node_range: str
    """The number of nodes that was asked for: ``3``, ``2:4`` for an elastic job, ``3+1`` with a spare."""
    ready_nodes: int
    """Nodes that run now, without spares that stand by."""
    world_size: int
    """Ranks that train now."""
    restarts: int
    """Restarts after failures: of nodes, or of the ranks on nodes that stay."""
    created: float
    """When it was submitted."""
    ended: float | None
    """When it ended. Null: it has not."""
    progress: Progress
    """How far training is."""
    failure: Termination | None
    """Why it failed. Null: it has not."""
    nodes: tuple[NodeState, ...]
    """Its nodes, by index."""
    snapshots: str
    """Where its snapshots are: ``claim NAME``, a folder, or what goes with its nodes. Empty: it takes none."""
    mirror: MirrorReport | None = None
    """The copy of its snapshots in an object store, as its agent last told. Null: it has none, or has not begun."""
    copies: CopiesReport | None = None
    """The copies of its snapshots on other nodes, as its agent last told. Null: it has none, or has not begun."""
    outputs: str = ""
    """Where its ranks write by relative path: the folder of ``--outputs``, else each node's. Empty: none of its own."""
    spares: tuple[int, ...] = ()
    """Nodes that stand by, to take the place of one that is lost."""
    queue: QueuePosition | None = None
    """Its place in a queue. Null: it is in none."""
    slow: dict[str, float] = {}
    """Ranks that stay slow: how many times the other ranks' step theirs takes, by rank."""
    last_failure: Termination | None = None
    """The failure that the ranks recover from, until they take a step. Null: none, or its node has told no more."""
    standstill: Standstill | None = None
    """What the ranks do while none takes a step for unusually long: no judgement. Null: they do, or none runs."""
    formed: float | None = None
    """When its ranks were last started together. Null: not yet, or not reported."""
    last_step: float | None = None
    """When a step was last taken. Null: none yet, or not reported."""
    trend: Trend = Trend()
    """Loss and throughput over the run, for a curve."""
    last_recovery: RecoveryTimings | None = None
    """The last recovery. Null: none, or not reported."""
    failures: tuple[PastFailure, ...] = ()
    """The last failures that the job recovered from, the oldest first."""
    note: str = ""
    """What was seen of a job that has succeeded: no optimizer step, or an error that a rank printed last. A fact: an
    evaluation takes no step either. Empty: nothing of the kind."""

    @property
    def finished(self) -> bool:
        """Whether the job has ended."""
        return self.phase in TERMINAL_PHASES

    @property
    def has_lost_snapshots(self) -> bool:
        """Whether none of its own is whole any more: its nodes have ended with them, or too many were lost at once."""
        copies = self.copies
        lost = copies is not None and copies.step is None and copies.copied_step is not None
        ended = self.phase == "Suspended" or self.finished
        return lost or (ended and self.snapshots in OF_NODES and not self.ready_nodes)

    @property
    def goes_on_from(self) -> str:
        """What it continues from if it is started again: ``its last snapshot``, or its mirror's. Empty: nothing."""
        if not self.has_lost_snapshots:
            return "its last snapshot" if self.progress.snapshot_step else ""
        mirror = self.mirror
        return f"step {mirror.step}, which is in {mirror.url}" if mirror and mirror.step is not None else ""

    @property
    def steps(self) -> str:
        """``step 72/225``; empty if none is known."""
        step, total = self.progress.reached, self.progress.total_steps
        return "" if step is None else f"step {step}{f'/{total}' if total else ''}"

    @property
    def loss(self) -> str:
        """``loss 0.0818``; empty if it is not known."""
        return "" if self.progress.loss is None else f"loss {self.progress.loss:.4g}"

    @property
    def brief(self) -> str:
        """``digits-kzls: Running, step 72/225, loss 0.0818``, in one line that is safe to print."""
        reason = self.reason if len(self.reason) <= BRIEF_REASON else f"{self.reason[:BRIEF_REASON]}..."
        parts = self.phase, self.steps, self.loss, reason
        return printable.line(f"{self.name}: {', '.join(filter(None, parts))}")

    def __repr__(self) -> str:
        """In brief: ``<digits-kzls: Running, step 72/225>``."""
        return f"<{self.brief}>"

    def still(self, now: float) -> str:
        """``no step for 42s: rank 1 sleeps at h.py:5``: a fact, which may be as it should; empty if steps are taken."""
        found = self.standstill
        return f"no step for {duration(now - found.since)}: {found.what}" if found else ""


_RANKS_FAILED: Final = " have failed"  # the end of a round as other nodes see it: their own tells why, in a moment
_UNREACHED: Final = "waiting for node 0 at "  # what an agent says that finds no way to node 0
_CONSEQUENCE: Final = " lost its peers ("  # in the reason of a node whose ranks failed because of others'


def derive(facts: JobFacts) -> JobState:
    """Derive the state; the one place that decides the phase."""
    report = facts.report or Report()
    return JobState(
        name=facts.name,
        namespace=facts.namespace,
        target=facts.target,
        job_kind=facts.kind,
        phase=(phase := _phase(facts)),
        reason=_reason(facts, phase),
        node_range=facts.node_range,
        ready_nodes=sum(node.alive for node in facts.nodes) - len(spares := _spares(facts, phase)),
        spares=spares,
        world_size=report.world_size if phase == "Running" else 0,
        restarts=max(sum(_restarts(node, report) for node in facts.nodes), report.restarts),
        created=facts.created,
        ended=facts.ended,
        progress=report.progress,
        failure=facts.failure,
        nodes=tuple(_node(node, facts, phase) for node in facts.nodes),
        snapshots=facts.snapshots,
        mirror=report.mirror,
        copies=report.copies,
        outputs=facts.outputs,
        queue=facts.queue,
        slow=report.slow if phase == "Running" else {},
        last_failure=_last_told(facts) if phase in {"Starting", "Running", "Recovering"} else None,
        standstill=report.standstill if phase == "Running" else None,
        formed=report.formed or None,
        last_step=report.last_step or None,
        trend=report.trend,
        last_recovery=report.last_recovery,
        failures=report.failures,
        note=_note(facts, phase),
    )


def _note(facts: JobFacts, phase: Phase) -> str:
    """What a job that does nothing, or hides an error, looks like: so do healthy ones, and it is no warning."""
    ended = [node.termination for node in facts.nodes if node.termination and node.termination.outcome == "done"]
    if phase != "Succeeded" or not ended:
        return ""
    stepped = facts.report is None or facts.report.progress.step is not None
    notes = [one.note for one in ended if one.note]
    told = [note for note in notes if not LAST_LINE.match(note)] or ([] if stepped else notes)
    return "; ".join([*([] if stepped else ["no optimizer step was seen"]), *told[:1]])


def _phase(facts: JobFacts) -> Phase:
    present = [node for node in facts.nodes if node.alive or node.exit_code == 0]
    if facts.result:
        return facts.result
    if not present and _waits(facts):
        return "Pending"
    if not present:
        return "Suspended" if facts.suspended else "Recovering" if _has_run(facts) else "Pending"
    if not facts.reports and len(present) >= facts.desired_nodes:
        return "Running"  # as far as is known
    if facts.report is None or not facts.report.formed:
        return "Recovering" if any(node.attempts > 1 for node in facts.nodes) else "Starting"
    return "Running" if _is_complete(facts.report, present) else "Recovering"


def _spares(facts: JobFacts, phase: Phase) -> tuple[int, ...]:
    """The nodes that stand by, of those that are still there."""
    if phase != "Running" or facts.report is None:
        return ()
    alive = {node.index for node in facts.nodes if node.alive}
    return tuple(index for index in facts.report.spares if index in alive)


def _waits(facts: JobFacts) -> bool:
    """Whether it waits in a queue."""
    return facts.queue is not None and facts.queue.state == "Waiting"


def _has_run(facts: JobFacts) -> bool:
    """Whether any node has run, or any group has formed (a lost node may leave no trace)."""
    return any(node.attempts for node in facts.nodes) or bool(facts.report and facts.report.formed)


def _is_complete(report: Report, present: list[NodeFacts]) -> bool:
    """Whether every member of the last group is still the process that joined it, or is done.

    Once training has ended no other group forms: one that still uploads what it trained is enough.
    """
    joined = {str(node.index): node for node in present if not node.alive or _has_joined(node, report)}
    if report.ended and any(joined[index].alive for index in report.nodes.keys() & joined):
        return True
    return not report.forming and report.nodes.keys() <= joined.keys()


def _has_joined(node: NodeFacts, report: Report) -> bool:
    """Whether a node's process is the one that joined the group.

    Times tell where nothing else does, both by the node's own clock: one that is set between the two misleads.
    """
    assignment = report.nodes.get(str(node.index))
    if node.pid and assignment and assignment.pid:
        return node.pid == assignment.pid
    return (node.started or 0.0) <= (assignment.joined if assignment and assignment.joined else report.formed)


def _reason(facts: JobFacts, phase: Phase) -> str:
    if phase == "Failed" and facts.failure:
        return _failure_reason(facts.failure)
    if facts.halted and phase not in TERMINAL_PHASES:
        return facts.halted
    if facts.unreported and phase == "Running":
        return facts.unreported
    if phase in {"Running", "Succeeded"} and facts.report:
        return facts.report.warning or (_last_failure(facts) if phase == "Running" else "")
    if phase in TERMINAL_PHASES or phase == "Running":
        return ""
    notes = () if _waits(facts) else (node.note for node in facts.nodes)
    preparing = (_preparing(node, facts) for node in facts.nodes)
    known = next(filter(None, (*notes, *preparing)), facts.note) or facts.unreported or _last_failure(facts)
    ended_by = facts.report.ended_by if phase == "Recovering" and facts.report else ""
    return known or ("" if ended_by.endswith(_RANKS_FAILED) else ended_by)


def _last_failure(facts: JobFacts) -> str:
    """What the ranks recover from; empty once they have taken a step since, or if no rank has failed.

    A node's own message is the newest, but a pod's is known only after its end.
    """
    report = facts.report or Report()
    resumed = report.progress.resumed_at or 0.0
    if last := _last_told(facts):
        return f"before: {_failure_reason(last)}"
    past = report.failures[-1] if report.failures else None
    return f"before: node {past.node}: rank {past.rank} failed ({past.cause})" if past and past.time > resumed else ""


def _last_told(facts: JobFacts) -> Termination | None:
    """What a node has said of it; None once the ranks have taken a step since.

    Of those that have ended only one that ends the job is heard, which takes a moment.
    """
    resumed = (facts.report and facts.report.progress.resumed_at) or 0.0
    told = (one for node in facts.nodes if (one := node.termination) and (node.alive or one.outcome == "fatal"))
    causes = (one for one in told if one.rank is not None and _CONSEQUENCE not in one.reason)
    last = max(causes, key=lambda one: one.time, default=None)
    # Times of failures are whole seconds: one that ends the job may seem to be before its last step.
    return last if last and (last.outcome == "fatal" or last.time > resumed) else None


def _preparing(node: NodeFacts, facts: JobFacts) -> str:
    """What the node's current process does before it joins; empty if nothing that takes long. By its own clock."""
    preparation = facts.preparing.get(node.index)
    current = preparation and node.alive and preparation.pod == node.pod and preparation.since >= (node.started or 0.0)
    if not preparation or not current:
        return ""
    if not preparation.what.startswith(_UNREACHED):
        return preparation.what
    first = next((one for one in facts.nodes if one.index == 0 and one.alive), None)
    met = bool(facts.report and facts.report.formed and (node.started or 0.0) <= facts.report.formed)
    if first is None or preparation.since < (first.started or 0.0) + UP_FOR or met:
        return ""
    return f"node {node.index} is waiting for node 0 at {preparation.what.removeprefix(_UNREACHED)}"


def _failure_reason(failure: Termination) -> str:
    """Why a job has failed, with the node that failed."""
    return failure.reason if failure.node is None else f"node {failure.node}: {failure.reason}"


def _node(node: NodeFacts, facts: JobFacts, phase: Phase) -> NodeState:
    report = facts.report or Report()
    assignment = report.nodes.get(str(node.index)) if phase == "Running" else None
    first, last = assignment.ranks if assignment else (0, -1)
    return NodeState(
        index=node.index,
        state="Spare"
        if node.index in _spares(facts, phase)
        else _node_state(node, assigned=assignment is not None or not facts.reports, phase=phase),
        ranks=tuple(range(first, last + 1)),
        pod=node.pod,
        host=assignment.host if assignment else node.host,
        restarts=_restarts(node, report),
        since=node.started if node.alive else node.ended,
        reason=(_preparing(node, facts) if assignment is None else "") or _node_reason(node, phase, report),
    )


def _restarts(node: NodeFacts, report: Report) -> int:
    """How often a node was started again: as a pod or process, and its agent within that."""
    return max(node.attempts - 1, 0) + _in_place(node, report).agent_restarts


def _in_place(node: NodeFacts, report: Report) -> NodeAssignment:
    """What the node's current pod has reported; empty before it has."""
    assignment = report.nodes.get(str(node.index))
    known = assignment and assignment.pod == node.pod and _has_joined(node, report)
    return assignment if assignment and known else NodeAssignment()


def _node_reason(node: NodeFacts, phase: Phase, report: Report) -> str:
    """Why the node is in its state; of a failed job, only its part in the failure, as the job has the reason."""
    ended = node.termination
    if phase != "Failed" or not ended or ended.outcome != "fatal" or ended.node is None or node.alive:
        cause = _in_place(node, report).restart_cause or node.before
        before = f"before: {cause}" if cause and node.alive else ""
        return node.note or before or (f"{'before: ' if node.alive else ''}{ended.reason}" if ended else "")
    if ended.node != node.index:
        return f"ended with node {ended.node}"
    return "failed" if ended.rank is None else f"rank {ended.rank} failed"


def _node_state(node: NodeFacts, *, assigned: bool, phase: Phase) -> str:
    if node.alive:
        return "Running" if assigned else "Joining"
    if node.exit_code == 0:
        return "Done"
    if node.attempts == 0:
        return "Absent" if phase in TERMINAL_PHASES or phase == "Suspended" else "Pending"
    return {"drained": "Drained", "fatal": "Failed"}.get(
        node.termination.outcome if node.termination else "", "Stopped" if phase in TERMINAL_PHASES else "Lost"
    )
