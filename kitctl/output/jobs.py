"""The objects of ``status``, ``list`` and ``submit``: a job, and a list of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.output.base import Document, Part, part_of
from kitctl.state.phase import Phase
from kitjob import report

if TYPE_CHECKING:
    from kitjob.report import PastFailure, Progress, RecoveryTimings, Termination
else:  # as parts of documents
    PastFailure, Progress = part_of(report.PastFailure), part_of(report.Progress)
    RecoveryTimings, Termination = part_of(report.RecoveryTimings), part_of(report.Termination)


class Node(Part, frozen=True, kw_only=True):
    """A node of a job: one pod, or one process group on this machine."""

    index: int
    """Index of the node, from 0."""
    state: str
    """Pending, Joining, Running, Done, Drained, Failed, Lost, Stopped or Absent."""
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


class Queue(Part, frozen=True, kw_only=True):
    """Where a job stands in a queue of the cluster."""

    name: str
    """Name of the queue."""
    state: str
    """Waiting, Admitted, Stopped (it does not wait until it is resumed) or Finished."""
    position: int | None
    """1 for the job that is next in the cluster queue. Null: it does not wait, or that is unknown."""
    reason: str
    """Why it is in this state, in the queue's own words. Empty: nothing to explain."""


class Job(Document, frozen=True, kw_only=True, tag="Job"):
    """A job, as ``status``, ``list`` and ``submit`` print it."""

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
    """The number of nodes that was asked for: ``3``, or ``2:4`` for an elastic job."""
    ready_nodes: int
    """Nodes that run now."""
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
    nodes: tuple[Node, ...]
    """Its nodes, by index."""
    snapshots: str
    """Where its snapshots are: ``claim NAME``, or a folder. Empty: it takes none."""
    outputs: str
    """Where its ranks write by relative path: the folder of ``--outputs``, else each node's. Empty: none of its own."""
    queue: Queue | None
    """Its place in a queue. Null: it is in none."""
    slow: dict[str, float]
    """Ranks that stay slow: how many times the other ranks' step theirs takes, by rank."""
    last_recovery: RecoveryTimings | None
    """The last recovery. Null: none, or not reported."""
    failures: tuple[PastFailure, ...]
    """The last failures that the job recovered from, the oldest first."""


class JobList(Document, frozen=True, kw_only=True, tag="JobList"):
    """Jobs, as ``list`` prints them."""

    items: tuple[Job, ...]
    """One object per job."""
