"""Facts about a job: what its agents report, and what a target finds out (from files, or a few API requests)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Outcome = Literal["done", "drained", "retryable", "fatal"]


class Termination(msgspec.Struct, frozen=True):
    """Why an agent ended, as it reports it (the container's termination message).

    ``rank`` and ``node`` failed first, ``error`` and ``traceback`` are that rank's exception, ``lines`` the last lines
    of its output, and ``fix`` what to do about it, if known.
    """

    outcome: Outcome
    reason: str = ""
    rank: int | None = None
    node: int | None = None
    time: float = 0.0
    error: str = ""
    fix: str = ""
    traceback: str = ""
    lines: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """How far training is, as rank 0 reports it.

    Of a script with a loop of its own, agents know the optimizer steps of its current processes, and their speed.
    """

    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    steps_per_second: float | None = None  # of a script with a loop of its own
    eta_seconds: float | None = None
    snapshot_step: int | None = None
    snapshot_seconds: float | None = None  # of the last snapshot, from its copy to its publication
    snapshot_stall_seconds: float | None = None  # of these, the time that training waited
    resumed_from: int | None = None  # the step that these ranks resumed from; of an own loop by what it loaded
    resumed_at: float | None = None  # when they reported their first step, in Unix seconds
    metrics: dict[str, float] = {}

    @property
    def of_own_loop(self) -> bool:
        """Whether the steps are those of a script with a loop of its own, which takes none of our snapshots."""
        return self.steps_per_second is not None


class NodeAssignment(msgspec.Struct, frozen=True):
    """The ranks of one node in the current group.

    ``ranks`` is first and last, and ``joined`` is by the node's own clock. ``agent_runs`` counts its containers, this
    one included, as far as their logs are copied; 0: they are not. ``agent_restarts`` is how often this container has
    started its agent again, and ``restart_cause`` how the agent before this one ended.
    """

    pod: str = ""
    host: str = ""
    group_rank: int = 0
    ranks: tuple[int, int] = (0, 0)
    joined: float = 0.0
    agent_runs: int = 0
    agent_restarts: int = 0
    restart_cause: str = ""


class RecoveryTimings(msgspec.Struct, frozen=True):
    """What ended the last group, and the seconds from there to the first step of the current one, by part."""

    cause: str = ""
    stop: float | None = None
    form: float | None = None
    start: float | None = None
    join: float | None = None
    restore: float | None = None
    first_step: float | None = None

    @property
    def parts(self) -> dict[str, float]:
        """The known parts, in order."""
        known = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "cause")
        return {name: seconds for name, seconds in known if seconds is not None}


class PastFailure(msgspec.Struct, frozen=True):
    """A failure of a rank after which the job restarted; ``time`` is Unix seconds."""

    time: float = 0.0
    node: int = 0
    rank: int = 0
    cause: str = ""


class Report(msgspec.Struct, frozen=True):
    """What the agent of rank 0 publishes about the group; times are Unix seconds.

    ``restarts`` counts how often its ranks were started again after a failure of a rank or the loss of a node, as far
    as nodes that were there then are left. ``busy`` is, by node, the seconds of a step in which its slowest rank does
    not wait for others; ``slow`` is, by rank, its step time divided by that of the others, for ranks that stay slow.
    ``failures`` are the last ones, the oldest first.
    """

    run: str = ""
    round: int = 0
    formed: float = 0.0
    forming: bool = False
    world_size: int = 0
    restarts: int = 0
    nodes: dict[str, NodeAssignment] = {}
    progress: Progress = Progress()
    busy: dict[str, float] = {}
    slow: dict[str, float] = {}
    last_recovery: RecoveryTimings | None = None
    failures: tuple[PastFailure, ...] = ()
    warning: str = ""  # what is probably not as it should be, although the ranks run or have succeeded


class Preparation(msgspec.Struct, frozen=True):
    """What a node does before it joins, as it reports it; ``since`` is Unix seconds by its own clock."""

    pod: str = ""
    since: float = 0.0
    what: str = ""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one node; times are Unix seconds."""

    index: int
    pod: str
    host: str = ""
    alive: bool = False
    attempts: int = 0
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    termination: Termination | None = None
    note: str = ""
    before: str = ""  # how the previous attempt ended


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A job's position in a queue of the cluster.

    ``Stopped``: it does not wait until a user resumes it. ``position`` is 1 for the job that is next.
    """

    name: str
    state: Literal["Waiting", "Admitted", "Stopped", "Finished"]
    position: int | None = None
    reason: str = ""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a job."""

    name: str
    namespace: str
    target: str
    kind: str
    node_range: str
    desired_nodes: int
    created: float
    suspended: bool = False
    result: Literal["Succeeded", "Failed", "Cancelled"] | None = None
    ended: float | None = None
    failure: Termination | None = None
    nodes: tuple[NodeFacts, ...] = ()
    report: Report | None = None
    preparing: Mapping[int, Preparation] = {}  # by node; may be left from an earlier process of the node
    reports: bool = True  # whether its agents publish one
    grace_seconds: float = 30.0  # from SIGTERM to SIGKILL
    snapshots: str = ""
    outputs: str = ""  # where ranks write by relative path, if that is a folder of the job's own
    queue: QueueFacts | None = None
    note: str = ""
