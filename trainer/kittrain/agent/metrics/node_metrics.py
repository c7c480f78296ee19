"""What a node has done since its agent started, as metrics: added up from the lines of its history. Pure.

Seconds count once it is known what they were: those of a step when it has ended, or when a fault has ended it. What
takes the lines of all nodes, as waiting for the slowest, is in ``kitctl goodput`` only. Labels have few values, all of
them from here; none is a text of a script.

Why: decision 56.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import kitjob
from kitjob.buckets import (
    BEFORE_STEPS,
    CODE,
    ENDED,
    IDLE,
    IN_STEPS,
    PHASES,
    RECOVERY,
    REPEATED,
    STARTING,
    TRAINING,
    WAITING,
    timed_out,
)
from kitjob.report import CopiesReport, MirrorReport, RankProgress
from kitjob.timeline import AgentState, Event, Line, Row
from kittrain.agent.metrics.exposition import Family, FamilyKind, Histogram, Labels
from kittrain.job.env import NodeEnv

STEP_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)  # seconds
STATES: Final[Mapping[str, str]] = {
    "code": CODE,
    "start": STARTING,
    "join": WAITING,
    "spare": "spare",
    "stop": RECOVERY,
    "barrier": WAITING,
    "exit": ENDED,
}
RECOVERING: Final = frozenset({"code", "start", "join"})  # states that are part of a recovery, after a fault
LONGEST_WAIT: Final = 1800.0  # seconds before the first step that a collective's time-out may take back: gloo's default
NO_LABELS: Final[Labels] = ()


class _Undecided(NamedTuple):
    """Seconds of a row that do not count yet."""

    begin: float
    end: float
    bucket: str
    seconds: float
    in_step: bool


class NodeMetrics:
    """Adds up lines; may be read from another thread.

    Attributes:
        stored: says how far the copies of the snapshots are, when somebody asks.
    """

    def __init__(self, node: NodeEnv) -> None:
        self.stored: Callable[[], tuple[MirrorReport | None, CopiesReport | None]] = lambda: (None, None)
        self._lock = threading.Lock()
        self._info = {
            "training_job": node.job.name,
            "training_namespace": node.job.namespace,
            "run": node.run_id,
            "node": str(node.node_index),
            "version": kitjob.__version__,
        }
        self._seconds: dict[str, float] = defaultdict(float)  # by bucket
        self._undecided: deque[_Undecided] = deque()  # of a step that has not ended, or until the first step
        self._state: tuple[str, float] | None = None  # its bucket, and since when
        self._recovering = bool(node.agent_restarts)  # from a fault to the next step
        self._first: float | None = None  # when the first step of this group had ended
        self._begun: int | None = None  # the step before the first one that this group was seen to take
        self._step: int | None = None
        self._reached = 0  # the last step of former groups
        self._again = 0  # steps of this group up to this one are repeated
        self._pace = 0.0  # seconds of loop phases since the last change of the step
        self._data_wait: float | None = None  # in a script's own loop it is not known
        self._steps = Histogram(STEP_BOUNDS)
        self._counts: dict[str, float] = dict.fromkeys(("faults", "recoveries", "lost_steps", "snapshots"), 0)
        self._recovery: dict[str, float] = defaultdict(float)  # by part
        self._snapshot_seconds = self._snapshot_stall = self._snapshot_bytes = 0.0
        self._world = self._nodes = self._memory = 0
        self._known: RankProgress | None = None  # of this group
        self._samples = self._not_finite = 0

    def add(self, line: Line) -> None:
        """Take a line of the history."""
        with self._lock:
            if isinstance(line, AgentState):
                self._enter(line)
            elif isinstance(line, Row):
                self._row(line)
            elif isinstance(line, Event):
                self._event(line)

    def progress(self, known: RankProgress) -> None:
        """Take what rank 0 reports, on the node that has it; counts begin anew with each start of the ranks."""
        with self._lock:
            before = self._known or RankProgress()
            restarted = known.samples < before.samples or known.resumed_at != before.resumed_at
            since = RankProgress() if restarted else before
            self._samples += max(known.samples - since.samples, 0)
            self._not_finite += max(known.not_finite_steps - since.not_finite_steps, 0)
            if known.snapshot_bytes and known.snapshot_time != before.snapshot_time:
                self._snapshot_bytes += known.snapshot_bytes
            self._known = known

    def families(self, now: float) -> list[Family]:
        """All metrics at this moment, in the history's time."""
        mirror, copies = self.stored()
        with self._lock:
            own = [*self._of_time(now), *self._of_steps(), *self._of_snapshots(), *self._of_group()]
        return [*own, *(_of_mirror(mirror, now) if mirror else ()), *(_of_copies(copies) if copies else ())]

    def _enter(self, line: AgentState) -> None:
        self._leave(line.time)
        if line.state in {"barrier", "exit"}:
            self._settle()
        if line.state == "ranks":
            return
        self._recovering = self._recovering or line.state == "stop"
        recovering = self._recovering and line.state in RECOVERING
        self._state = (RECOVERY if recovering else STATES[line.state], line.time)

    def _leave(self, now: float) -> None:
        if self._state:
            bucket, since = self._state
            self._seconds[bucket] += max(now - since, 0.0)
            self._state = None

    def _row(self, row: Row) -> None:
        self._world, self._memory = row.world, row.memory
        before = {phase: one for phase, one in row.phases.items() if phase in BEFORE_STEPS}
        for phase, seconds in before.items():
            self._hold(row, RECOVERY if self._recovering else PHASES[phase], seconds)
        late = {phase: one for phase, one in row.phases.items() if phase not in BEFORE_STEPS}
        share = self._first_step_share(row, sum(before.values()), sum(late.values()))
        first = RECOVERY if self._recovering else STARTING
        if self._first is not None:
            self._recovering = False
        for phase, seconds in late.items():
            self._hold(row, first, seconds * share)
            bucket = PHASES.get(phase, TRAINING)
            self._hold(row, bucket, seconds * (1 - share), in_step=bucket in IN_STEPS)
            self._pace += seconds * (1 - share) if bucket in IN_STEPS else 0.0
        if "DATA" in row.phases:
            self._data_wait = (self._data_wait or 0.0) + row.phases["DATA"]
        if row.step is not None and row.step != self._step:
            self._stepped(row, row.step)
        while self._undecided and not self._undecided[0].in_step and self._undecided[0].end < row.time - LONGEST_WAIT:
            one = self._undecided.popleft()
            self._seconds[one.bucket] += one.seconds

    def _hold(self, row: Row, bucket: str, seconds: float, *, in_step: bool = False) -> None:
        """Count seconds of a row later: a fault may say what they were for."""
        if seconds > 0:
            self._undecided.append(_Undecided(row.time - row.seconds, row.time, bucket, seconds, in_step))

    def _first_step_share(self, row: Row, before: float, late: float) -> float:
        """The part of a row's later phases that belongs to the first step, which connects and compiles."""
        begin = row.time - row.seconds
        ready = row.time if self._first is None else min(max(self._first, begin), row.time)
        return min(max(ready - begin - before, 0.0) / late, 1.0) if late else 0.0

    def _stepped(self, row: Row, step: int) -> None:
        """Steps have ended: their seconds are known, and so is whether they were taken before."""
        first = self._step is None or self._begun is None or step < self._step
        if first:
            self._begun = 0 if row.of_own_loop else step - max(row.steps, 1)
        before = step - row.steps if first else int(self._step or 0)
        limit = self._again if row.of_own_loop else max(self._reached, self._again)
        taken = max(step - before, 1)
        repeated = min(max(limit - before, 0) / taken, 1.0)
        self._settle(repeated)
        if not first:
            self._steps.observe(self._pace / taken, taken)
        self._step, self._pace = step, 0.0

    def _settle(self, repeated: float = 0.0, *, into: str = "") -> None:
        for one in self._undecided:
            again = repeated if one.in_step else 0.0
            self._seconds[into if into and one.in_step else one.bucket] += one.seconds * (1 - again)
            if one.in_step:
                self._seconds[REPEATED] += one.seconds * again
        self._undecided.clear()

    def _failed(self, event: Event) -> None:
        """A fault has ended the group. Its ranks were idle while they waited in a collective that has timed out."""
        waited = timed_out(event.cause)
        if event.outcome == "hang" or waited is None:
            self._settle(into=IDLE if event.outcome == "hang" else RECOVERY)
            return
        since = max(event.time - waited, event.since or 0.0)
        for one in self._undecided:
            idle = max(min(one.end, event.time) - max(one.begin, since), 0.0)
            share = min(idle / (one.end - one.begin), 1.0) if one.end > one.begin else 0.0
            self._seconds[IDLE] += one.seconds * share
            self._seconds[one.bucket] += one.seconds * (1 - share)
        self._undecided.clear()

    def _event(self, event: Event) -> None:
        if event.what == "joined":
            self._settle(into=RECOVERY if self._recovering else "")
            self._reached = max(self._reached, self._step or 0)
            self._first = self._step = self._begun = self._known = None
            self._world, self._nodes, self._again, self._pace = event.world, event.nodes, 0, 0.0
        elif event.what == "first step":
            self._first = event.time
        elif event.what == "fault":
            self._counts["faults"] += 1
            self._recovering = True
            self._failed(event)
        elif event.what == "recovered":
            self._recovered(event)
        elif event.what == "snapshot" and event.parts:  # what a script saves itself has none
            self._counts["snapshots"] += 1
            self._snapshot_seconds += event.seconds or 0.0
            self._snapshot_stall += event.parts.get("stall", 0.0)

    def _recovered(self, event: Event) -> None:
        self._counts["recoveries"] += 1
        self._counts["lost_steps"] += event.lost_steps
        self._again = (self._begun or 0) + event.lost_steps
        for part, seconds in event.parts.items():
            self._recovery[part] += seconds

    def _of_time(self, now: float) -> Iterator[Family]:
        seconds = dict(self._seconds)
        if self._state:
            bucket, since = self._state
            seconds[bucket] = seconds.get(bucket, 0.0) + max(now - since, 0.0)
        good = {NO_LABELS: seconds.pop(TRAINING, 0.0)}
        bad: dict[Labels, float] = {(("cause", name.replace(" ", "_")),): one for name, one in sorted(seconds.items())}
        yield _family("goodput_seconds", "counter", "Seconds of steps that were not taken before.", good)
        yield _family("badput_seconds", "counter", "Other seconds since the agent started, by what they were for.", bad)
        if self._data_wait is not None:
            yield _counter("data_wait_seconds", "Seconds in which ranks waited for data, their mean.", self._data_wait)
        parts: dict[Labels, float] = {(("part", part),): one for part, one in self._recovery.items()}
        yield _family("recovery_seconds", "counter", "Seconds from faults to the next step, by part.", parts)
        yield _counter("recoveries", "Faults after which steps were taken again.", self._counts["recoveries"])
        yield _counter("faults", "Ends of groups by a failure, a hang, or a lost node.", self._counts["faults"])
        yield _counter("lost_steps", "Steps that a fault made ranks take again.", self._counts["lost_steps"])

    def _of_steps(self) -> Iterator[Family]:
        yield Family(
            name=f"{PREFIX}step_seconds",
            kind="histogram",
            help="Time of a step; of steps within a second, their mean.",
            histogram=self._steps,
        )
        yield _gauge("step", "Last step.", self._step)
        known = self._known
        if known is None or known.of_own_loop:  # of a script's own loop only its steps are known
            return
        yield _counter("samples", "Samples of all ranks.", self._samples)
        yield _counter("non_finite_steps", "Steps whose loss was NaN or infinite.", self._not_finite)
        yield _gauge("loss", "Last loss; none if it is not finite.", known.loss)
        yield _gauge("samples_per_second", "Throughput of all ranks.", known.samples_per_second)
        yield _gauge("steps_planned", "Steps of the whole job.", known.total_steps)
        yield _gauge("epoch", "Epoch, from 1.", known.epoch)

    def _of_snapshots(self) -> Iterator[Family]:
        yield _counter("snapshots", "Published snapshots.", self._counts["snapshots"])
        yield _counter("snapshot_seconds", "Seconds from copies to publications.", self._snapshot_seconds)
        yield _counter("snapshot_stall_seconds", "Seconds in which training waited for copies.", self._snapshot_stall)
        yield _counter("snapshot_bytes", "Bytes of published snapshots.", self._snapshot_bytes)
        known = self._known or RankProgress()
        if known.snapshot_time:
            yield _gauge("snapshot_step", "Step of the last snapshot.", known.snapshot_step)
            yield _gauge("snapshot_time_seconds", "When it was published, in Unix time.", known.snapshot_time)

    def _of_group(self) -> Iterator[Family]:
        yield _gauge("world_size", "Ranks of the group.", self._world or None)
        yield _gauge("nodes", "Nodes of the group.", self._nodes or None)
        yield _gauge("rank_memory_bytes", "Main memory of this node's ranks.", self._memory or None)
        labels = tuple(self._info.items())
        yield _family("run", "info", "The run that this node belongs to.", {labels: 1.0})


PREFIX: Final = "kittrain_"


def _of_mirror(known: MirrorReport, now: float) -> Iterator[Family]:
    yield _gauge(
        "mirror_up", "Whether copying to the mirror goes on: 1, or 0 with a warning in status.", not known.warning
    )
    yield _counter("mirror_uploaded_bytes", "Bytes of snapshots that were copied to the mirror.", known.sent)
    yield _gauge("mirror_step", "Step of the newest snapshot in the mirror.", known.step)
    if known.step is not None or known.behind:  # else it is not known what is there
        since = known.behind_since
        waited = max(now - since, 0.0) if since is not None else 0.0
        yield _gauge("mirror_lag_seconds", "Age of the oldest snapshot that the mirror lacks; 0: it has all.", waited)
        yield _gauge("mirror_lag_steps", "Steps of published snapshots that the mirror lacks.", known.behind_steps)


def _of_copies(known: CopiesReport) -> Iterator[Family]:
    yield _gauge("snapshot_copies", "Nodes that have the rarest part of the newest snapshot.", known.have)
    yield _gauge("snapshot_copies_wanted", "Nodes that should have it.", known.wanted)
    yield _gauge("snapshot_copied_step", "Step of the newest snapshot that has all its copies.", known.copied_step)


def _family(name: str, kind: FamilyKind, text: str, values: Mapping[Labels, float]) -> Family:
    return Family(name=PREFIX + name, kind=kind, help=text, values=values)


def _counter(name: str, text: str, value: float) -> Family:
    return _family(name, "counter", text, {NO_LABELS: value})


def _gauge(name: str, text: str, value: float | None) -> Family:
    return _family(name, "gauge", text, {} if value is None else {NO_LABELS: float(value)})
