"""What is known of a job: what its agents tell, and what a target finds out (from files, or a few API requests)."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["done", "drained", "retryable", "fatal"]


class Termination(msgspec.Struct, frozen=True):
    """Why an agent ended, in its own words (the container's termination message).

    ``rank`` and ``node`` are those that failed first, ``error`` and ``traceback`` what that rank failed of, ``lines``
    the last ones of its output, and ``fix`` what a person can do about it, where that is known.
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
    """How far rank 0 says that training is."""

    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    snapshot_step: int | None = None
    snapshot_seconds: float | None = None  # that the last one took, from its copy to its publication
    snapshot_stall_seconds: float | None = None  # of these, how long training waited
    resumed_from: int | None = None  # the step that these ranks went on from
    resumed_at: float | None = None  # when their first step was told, in Unix seconds
    metrics: dict[str, float] = {}


class Place(msgspec.Struct, frozen=True):
    """One node's place in the current group.

    ``ranks`` is first and last, ``joined`` is by its own machine's clock, and ``lives`` how often the node was started
    as far as its logs were kept, this time included; 0: they are not.
    """

    pod: str = ""
    host: str = ""
    group_rank: int = 0
    ranks: tuple[int, int] = (0, 0)
    joined: float = 0.0
    lives: int = 0


class Recovery(msgspec.Struct, frozen=True):
    """What ended the group before, and seconds from then to the first step of the current one, part by part."""

    cause: str = ""
    stop: float | None = None
    form: float | None = None
    start: float | None = None
    join: float | None = None
    restore: float | None = None
    first_step: float | None = None

    @property
    def parts(self) -> dict[str, float]:
        """The parts that are known, in their order."""
        known = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "cause")
        return {name: seconds for name, seconds in known if seconds is not None}


class PastFailure(msgspec.Struct, frozen=True):
    """A failure of a rank that the job was started again after; ``time`` is Unix seconds."""

    time: float = 0.0
    node: int = 0
    rank: int = 0
    cause: str = ""


class Report(msgspec.Struct, frozen=True):
    """What the agent of rank 0 publishes about the group: times are Unix seconds.

    ``busy`` is, by node, for how many seconds of a step its slowest rank waits for no other one; ``slow`` is, by rank,
    how many times the others' step its own takes, for those ranks that stay slow. ``failures`` are the last ones that
    its nodes remember, the oldest first.
    """

    run: str = ""
    round: int = 0
    formed: float = 0.0
    forming: bool = False
    world_size: int = 0
    nodes: dict[str, Place] = {}
    progress: Progress = Progress()
    busy: dict[str, float] = {}
    slow: dict[str, float] = {}
    last_recovery: Recovery | None = None
    failures: tuple[PastFailure, ...] = ()


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one node; times are Unix seconds."""

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
    before: str = ""  # how the attempt before this one ended


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a target knows about a job."""

    name: str
    namespace: str
    target: str
    kind: str
    nodes: str
    wanted: int
    created: float
    suspended: bool = False
    end: Literal["Succeeded", "Failed", "Cancelled"] | None = None
    ended: float | None = None
    failure: Termination | None = None
    places: tuple[NodeFacts, ...] = ()
    report: Report | None = None
    reports: bool = True  # whether there will be one
    grace_seconds: float = 30.0  # from SIGTERM to SIGKILL
    snapshots: str = ""
    note: str = ""
