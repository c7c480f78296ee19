"""The objects of ``status``, ``list`` and ``submit``: a job, and a list of jobs."""

from __future__ import annotations

from kitctl.output.base import Document, Part
from kitctl.state.phase import Phase


class Progress(Part, frozen=True, kw_only=True):
    """How far training is, as rank 0 reports it."""

    step: int | None
    """Optimizer steps taken; in a script's own loop those since its ranks started. Null: none yet, or unknown."""
    total_steps: int | None
    """Steps of the whole job."""
    epoch: int | None
    """The current epoch, from 1."""
    epochs: int | None
    """Epochs of the whole job."""
    loss: float | None
    """The last training loss."""
    samples_per_second: float | None
    """Throughput of all ranks together."""
    steps_per_second: float | None
    """Optimizer steps per second of a script with a loop of its own."""
    eta_seconds: float | None
    """Estimated seconds until training ends."""
    snapshot_step: int | None
    """Step of the last published snapshot."""
    snapshot_seconds: float | None
    """How long that snapshot took, from its copy to its publication."""
    snapshot_stall_seconds: float | None
    """How long training waited for it."""
    resumed_from: int | None
    """The step that the current ranks resumed from; in a script's own loop by what it loaded. Null: not known."""
    resumed_at: float | None
    """When they reported their first step."""
    metrics: dict[str, float]
    """Further metrics of the script, by name."""


class Failure(Part, frozen=True, kw_only=True):
    """Why a job failed."""

    outcome: str
    """Exit of the agent: ``done``, ``drained``, ``retryable`` or ``fatal``."""
    reason: str
    """The cause, in a sentence."""
    rank: int | None
    """The rank that failed first. Null: no rank did."""
    node: int | None
    """The node that failed first."""
    time: float
    """When; 0 where that is unknown."""
    error: str
    """The exception of that rank, in one line."""
    fix: str
    """What to do about it. Empty: unknown."""
    traceback: str
    """The traceback of that rank. Empty: none."""
    lines: tuple[str, ...]
    """The last lines that it printed."""


class PastFailure(Part, frozen=True, kw_only=True):
    """A failure after which the ranks were restarted."""

    time: float
    """When."""
    node: int
    """Index of the node."""
    rank: int
    """The rank that failed first."""
    cause: str
    """The cause, in a sentence."""


class RecoveryTimings(Part, frozen=True, kw_only=True):
    """The parts of a recovery, in seconds; null: not measured."""

    cause: str
    """What ended the group of ranks before."""
    stop: float | None
    """Stopping the old ranks."""
    form: float | None
    """Forming the new group."""
    start: float | None
    """Starting the new ranks."""
    join: float | None
    """Joining the process group."""
    restore: float | None
    """Restoring the training state."""
    first_step: float | None
    """The first step."""


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
    failure: Failure | None
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
