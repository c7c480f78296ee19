"""What a job's node-seconds were spent on: each in exactly one bucket, or unknown. Pure.

Intervals come from what was measured: the states of agents, the phases of their ranks, the moments that the target
knows. None is computed as what is left; what no measurement covers is ``unknown``.

Why: decision 54.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from kitctl.state import history
from kitctl.state.history import Attempt, JobHistory, WriterLog, writers
from kitctl.state.waits import ROUNDING, Waits
from kitjob.buckets import BEFORE_STEPS, IN_STEPS, PHASES, timed_out
from kitjob.timeline import AgentState, Event, Row

BUCKETS: Final[Mapping[str, str]] = {
    "queue": "waits for quota in a queue",
    "placement": "waits for a place: scheduling, and on this machine the supervisor",
    "image and code": "the image is pulled, code is unpacked, packages are installed",
    "start and join": "agents and ranks start, import, and form their process group",
    "restore": "a snapshot is read, at a first start",
    "training": "steps: forward, backward, update, exchange",
    "data wait": "the loop waits for its data",
    "evaluation": "evaluation, between steps",
    "snapshot stall": "training waits for a snapshot",
    "waiting for a peer": "this node is ready, and another one is not",
    "spare": "this node stands by, to take the place of a lost one",
    "repeated steps": "steps that had been taken before",
    "recovery": "from a fault to the next step",
    "idle after a hang": "no rank moves, until that is recognized, or a collective times out",
    "drained": "stopped as requested: suspended, preempted, scaled down",
    "ended": "this node has ended, or its script's training; the job has not",
}
UNKNOWN: Final = "unknown"
PARTS: Final[Mapping[str, str]] = {  # of a recovery, by phase; what comes before the first step otherwise is its part
    "STARTING": "start",
    "JOINING": "join",
    "PREPARING": "restore",
    "RESTORING": "restore",
}
STATE_PARTS: Final[Mapping[str, str]] = {"code": "start", "start": "start", "join": "form", "stop": "stop"}
CARRIED: Final = 2.5  # seconds after a killed agent's last line in which it is taken to have gone on
LARGEST_ERROR: Final = 0.005  # of the elapsed node-seconds

Kind = tuple[str, str, str]  # bucket, cause, part


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bucket."""

    part: str
    """What it is. Empty: the whole bucket has no parts."""
    cause: str = ""
    """Of a recovery or a hang: what ended the group before."""
    seconds: float
    """Node-seconds."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What node-seconds were spent on."""

    name: str
    """Its name."""
    seconds: float
    """Node-seconds."""
    share: float
    """Of all node-seconds, from 0 to 1."""
    parts: tuple[Share, ...] = ()
    """What it consists of, the longest first."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """What the node-seconds of a job were spent on since its submission."""

    name: str
    """Name of the job."""
    namespace: str
    """Its namespace."""
    nodes: int
    """Its nodes."""
    elapsed_seconds: float
    """Seconds since submission, until its end or now, by the clock of the API server or of the supervisor."""
    node_seconds: float
    """The same, times the nodes."""
    buckets: tuple[Bucket, ...]
    """All buckets; with ``unknownSeconds`` they add up to ``nodeSeconds``."""
    unknown_seconds: float
    """Node-seconds that no measurement covers."""
    overlap_seconds: float
    """Node-seconds that two measurements cover, of which the first counts: an error if it is more than rounding."""
    carried_seconds: float
    """Node-seconds after the last line of killed agents, which count as their last second did."""
    goodput: float
    """Training, divided by all node-seconds."""
    ettr: float
    """Effective training time ratio: steps that were not repeated, divided by all node-seconds."""
    ettr_since_admission: float
    """The same without the time in a queue."""
    repeated_steps: int
    """Steps that were taken again."""
    faults: int
    """Ends of groups by a fault."""
    clock_jump_seconds: float
    """Seconds by which the run's times contradict their order, as a clock was set: other numbers are wrong. 0: none."""

    @property
    def holds(self) -> bool:
        """Whether what is unknown, or measured twice, is within the error that is allowed, and no clock was set."""
        return not self.clock_jump_seconds and max(self.unknown_seconds, self.overlap_seconds) <= max(
            LARGEST_ERROR * self.node_seconds, 0.5
        )


class _Span(NamedTuple):
    """An interval of a node, and what its seconds were spent on, in proportion."""

    start: float
    end: float
    kinds: Mapping[Kind, float]


def account(job: JobHistory, logs: Sequence[WriterLog] | None = None) -> Goodput:
    """Where a job's node-seconds went; ``logs`` are those of ``writers``, if they are known."""
    logs = writers(job) if logs is None else logs
    end = max(job.now if job.ended is None else job.ended, job.submitted)
    totals: dict[Kind, float] = defaultdict(float)
    unknown = overlap = carried = 0.0
    context = _Context(logs)
    for node in range(job.nodes):
        spans, more = _node(job, node, [log for log in logs if log.writer.node == node], context, end)
        found = _lay(spans, job.submitted, end, totals)
        unknown, overlap, carried = unknown + found[0], overlap + found[1], carried + more
    whole = (end - job.submitted) * job.nodes
    return _summary(job, end, whole, totals, unknown=unknown, overlap=overlap, carried=carried, context=context)


class Stretch(NamedTuple):
    """A time in which a node did one thing for the most part: seconds since the submission."""

    begin: float
    end: float
    bucket: str


def lanes(job: JobHistory, logs: Sequence[WriterLog] | None = None) -> list[list[Stretch]]:
    """What each node did, in order: of each moment the bucket that most of it counts as; ``logs`` as above."""
    logs = writers(job) if logs is None else logs
    end = max(job.now if job.ended is None else job.ended, job.submitted)
    context = _Context(logs)
    found = []
    for node in range(job.nodes):
        spans, _ = _node(job, node, [log for log in logs if log.writer.node == node], context, end)
        found.append([*_stretches(spans, job.submitted, end)])
    return found


def _stretches(spans: Iterable[_Span], begin: float, end: float) -> Iterator[Stretch]:
    current: Stretch | None = None
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        start, stop = max(span.start - begin, 0.0 if current is None else current.end), min(span.end, end) - begin
        if stop <= start or not span.kinds:
            continue
        by_bucket: dict[str, float] = defaultdict(float)
        for (bucket, _, _), weight in span.kinds.items():
            by_bucket[bucket] += weight
        bucket = max(by_bucket, key=lambda one: by_bucket[one])
        if current and current.bucket == bucket and start - current.end <= ROUNDING:
            current = Stretch(current.begin, stop, bucket)
            continue
        if current:
            yield current
        current = Stretch(start, stop, bucket)
    if current:
        yield current


class _Context:
    """What all nodes' lines say together: the first step of each group, repeated steps, the slowest node."""

    def __init__(self, logs: Sequence[WriterLog]) -> None:
        self.logs = logs
        events = [event for log in logs for event in log.events]
        self.faults = sorted((one for one in events if one.what == "fault"), key=lambda one: one.time)
        # By group: how long a collective of it had waited when it timed out, and in which words.
        self.timeouts = {
            one.round: (waited, one.cause) for one in self.faults if (waited := timed_out(one.cause)) is not None
        }
        self.lost = {one.round: one.lost_steps for one in events if one.what == "recovered"}
        self.reached, self.repeated_steps = _reached(logs, self.lost)
        self.waits = Waits(logs)

    def cause(self, time: float, otherwise: str) -> str:
        """What ended a group about then, as other nodes saw it."""
        near = min(self.faults, key=lambda one: abs(one.time - time), default=None)
        return near.cause if near and abs(near.time - time) < CARRIED and near.cause else otherwise

    def repeated(self, row: Row) -> float:
        """The share of a row's steps that had been taken before."""
        if row.step is None:
            return 0.0
        limit = self.lost.get(row.round, 0) if row.of_own_loop else self.reached.get(row.round, 0)
        first = row.step - row.steps
        if row.step <= limit:
            return 1.0
        return (limit - first) / row.steps if row.steps and first < limit else 0.0


def _reached(logs: Sequence[WriterLog], lost: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """By group the last step of the groups before it, in the library's loop, and how many steps were taken again.

    The latter as the agents tell it, else as rows show: these are a second apart.
    """
    ran: dict[int, list[tuple[int, int, bool]]] = defaultdict(
        list
    )  # first step, last one, whether that is of another fit
    for log in logs:
        steps: dict[int, list[int]] = defaultdict(list)
        for row in log.rows:
            if row.step and not row.of_own_loop:
                steps[row.round].append(row.step)
        for number, found in steps.items():
            anew = max((index for index, (one, other) in enumerate(pairwise(found), 1) if other < one), default=0)
            ran[number].append((found[0], max(found[anew:]), anew > 0))
    reached: dict[int, int] = {}
    again, most = dict(lost), 0
    for number in sorted(ran):
        reached[number] = most
        first, last = min(one[0] for one in ran[number]), max(one[1] for one in ran[number])
        if number not in lost:
            again[number] = max(min(most, last) - first + 1, 0)
        most = last if any(one[2] for one in ran[number]) else max(most, last)
    return reached, sum(again.values())


def _node(
    job: JobHistory, node: int, logs: Sequence[WriterLog], context: _Context, end: float
) -> tuple[list[_Span], float]:
    """The spans of a node in order, and the seconds that are carried on from a last line."""
    attempts = [one for one in job.attempts if one.node == node]
    spans = [*_before_start(job, attempts, logs, end)]
    carried, cause, gone = 0.0, "", ""
    for index, log in enumerate(logs):
        following = logs[index + 1].writer.time if index + 1 < len(logs) else None
        attempt = _attempt(attempts, log)
        if index:
            spans += _between(job, spans, attempt, log, gone, cause)
        elif attempt and attempt.started is not None:
            spans.append(_Span(attempt.started, log.writer.time, {("start and join", "", ""): 1.0}))
        own, cause = _written(log, context, cause)
        spans += own
        stop = _stop(attempt, following, job, context, log, end)
        if log.ending is None and stop > log.last:
            tail = min(stop, log.last + CARRIED) - log.last
            if own and tail > 0:
                spans.append(_Span(log.last, log.last + tail, own[-1].kinds))
                carried += tail
            if attempt and attempt.done and following is None:
                gone = "ended"  # its last lines are missing, as of a tail that could not be written
            elif following is not None or (attempt and attempt.ended):
                cause = context.cause(stop, attempt.how if attempt else "") or "node lost"
                gone = "recovery"
        else:
            gone = _after(log.ending)
            cause = cause if gone == "recovery" else ""
            last = spans[-1].end if spans else log.last
            if stop > last:
                spans.append(_Span(last, stop, {(gone, cause if gone == "recovery" else "", ""): 1.0}))
    if spans and gone and (not logs or logs[-1].ending is not None or (attempts and attempts[-1].ended)):
        kind = (gone, cause, "replace") if gone == "recovery" else (gone, "", "")
        pending = attempts[-1] if attempts and attempts[-1].started is None else None
        spans += _without_process(job, spans[-1].end, end, kind, pending)
    return spans, carried


def _before_start(
    job: JobHistory, attempts: Sequence[Attempt], logs: Sequence[WriterLog], end: float
) -> Iterator[_Span]:
    """From the submission to the first start of the node's process."""
    first = attempts[0] if attempts else None
    if logs and first and first.started is not None:
        first = _attempt(attempts, logs[0])  # None: its pod is gone, and with it when it was scheduled and started
    starts = [one.writer.time for one in logs[:1]]
    if first and first.started is not None:
        starts.append(first.started)
    yield from _without_process(job, job.submitted, min(starts, default=end), None, first)


def _between(
    job: JobHistory, spans: Sequence[_Span], attempt: Attempt | None, log: WriterLog, gone: str, cause: str
) -> Iterator[_Span]:
    """From the end of one agent to the first line of the next."""
    at = spans[-1].end if spans else log.writer.time
    known = attempt if attempt and attempt.started is not None and attempt.started >= at else None
    began = known.started if known and known.started is not None else log.writer.time
    recovering = gone == "recovery"
    lost = (gone or UNKNOWN, cause if recovering else "", "replace" if recovering else "")
    yield from _without_process(job, at, began, lost, known)
    kind = ("recovery", cause, "start") if recovering else ("start and join", "", "")
    yield _Span(began, log.writer.time, {kind: 1.0})


def _without_process(
    job: JobHistory, at: float, until: float, otherwise: Kind | None, attempt: Attempt | None
) -> Iterator[_Span]:
    """A time in which a node has no process: waits in the queue, then for its place and its image.

    Args:
        job: with its waits.
        at: when the time begins.
        until: when it ends.
        otherwise: what it counts as where the job did not wait; None: a place and an image.
        attempt: the start that ends it, if it is known.
    """
    placing = otherwise is None
    for wait in job.waits:
        since, ready = max(wait.since, at), until if wait.until is None else min(wait.until, until)
        if since > ready:
            continue
        if otherwise:
            yield _Span(at, since, {otherwise: 1.0})
        yield _Span(since, ready, {("queue", "", ""): 1.0})
        at, placing = ready, True
    if attempt and attempt.created is not None and otherwise and otherwise[0] == "drained" and at < attempt.created:
        yield _Span(at, min(attempt.created, until), {otherwise: 1.0})
        at, placing = min(attempt.created, until), True
    if attempt and placing:
        yield from _placed(attempt, at, until)
    elif otherwise:
        yield _Span(at, until, {otherwise: 1.0})


def _placed(attempt: Attempt, at: float, until: float) -> Iterator[_Span]:
    """From when a node might have been placed to the start of its process."""
    if attempt.scheduled is not None and attempt.scheduled > at:
        yield _Span(at, attempt.scheduled, {("placement", "", ""): 1.0})
        at = attempt.scheduled
    yield _Span(at, until, {("placement" if attempt.scheduled is None else "image and code", "", ""): 1.0})


def _attempt(attempts: Sequence[Attempt], log: WriterLog) -> Attempt | None:
    """The start of the node that a writer belongs to."""
    before = [one for one in attempts if one.started is not None and one.started <= log.writer.time + CARRIED]
    return before[-1] if before else None


def _stop(
    attempt: Attempt | None,
    following: float | None,
    job: JobHistory,
    context: _Context,
    log: WriterLog,
    end: float,
) -> float:
    """When a writer's process ended, as its parent or the others saw it; else its last line."""
    limit = end if following is None else min(following, end)
    if attempt and attempt.ended is not None and log.last - ROUNDING <= attempt.ended <= limit:
        if log.ending is None:  # the others may have noticed before its parent did
            limit = attempt.ended
        else:
            return attempt.ended
    elif log.ending is None and following is None and job.ended is None:
        return limit  # it runs
    seen = [one.time for one in context.faults if log.last - 1.0 <= one.time <= min(limit, log.last + CARRIED)]
    known = attempt is not None and attempt.ended == limit
    return max(min([*seen, *([limit] if known else [])], default=log.last), log.last)


def _after(ending: Event | None) -> str:
    """What the time after an agent's end counts as."""
    if ending is None or ending.outcome == "retryable":
        return "recovery"
    return "drained" if ending.what == "drained" else "ended"


def _written(log: WriterLog, context: _Context, cause: str) -> tuple[list[_Span], str]:
    """The spans of one writer, and the cause of the recovery that it is in at its end; empty: it is in none."""
    spans: list[_Span] = []
    states, rows, events = log.states, log.rows, log.events
    firsts = {one.round: one.time for one in events if one.what == "first step"}
    faults = {one.round: one for one in events if one.what == "fault"}
    ends = [*(one.time for one in states[1:]), log.last][: len(states)]
    number = 0
    for index, (state, end) in enumerate(zip(states, ends, strict=True)):
        if state.state == "ranks":
            own = [
                row for row in rows if state.time - ROUNDING <= row.time - row.seconds and row.time <= end + ROUNDING
            ]
            for row in own:
                number = row.round
                spans.append(_row(row, context, cause, firsts.get(number), faults.get(number)))
            if number in firsts and own:
                cause = ""
            continue
        if state.state == "spare":
            spans.append(_Span(state.time, end, {("spare", "", ""): 1.0}))
            cause = context.cause(end, "")  # of the round that it joins, if a fault ended the one before
            continue
        if state.state == "stop":
            seen = faults.get(number)
            cause = (seen.cause if seen else "") or state.cause or "resized"
        spans.append(_Span(state.time, end, {_state_kind(state, states[index:], log.ending, cause): 1.0}))
    return spans, cause


def _state_kind(state: AgentState, rest: Sequence[AgentState], ending: Event | None, cause: str) -> Kind:
    """What a state of an agent counts as; ``rest`` are the states from it on."""
    last = not any(one.state == "ranks" for one in rest)
    if state.state == "exit" or (state.state in {"stop", "join"} and last and ending and cause and len(rest) > 1):
        after = _after(ending)
        return (after, cause, "stop") if after == "recovery" else (after, "", "")
    if state.state == "barrier":
        return "waiting for a peer", "", "at the end"
    if cause:
        return "recovery", cause, STATE_PARTS[state.state]
    return {
        "code": ("image and code", "", "code"),
        "start": ("start and join", "", ""),
        "join": ("waiting for a peer", "", "to form a group"),
        "stop": ("recovery", "resized", "stop"),
    }[state.state]


def _row(row: Row, context: _Context, cause: str, first: float | None, fault: Event | None) -> _Span:
    """A row's span: phases as buckets, before the first step, in a hang, and of steps taken before."""
    begin = row.time - row.seconds
    ready = row.time if first is None else min(max(first, begin), row.time)  # the first step has ended
    kinds: dict[Kind, float] = defaultdict(float)
    early = {phase: seconds for phase, seconds in row.phases.items() if phase in BEFORE_STEPS}
    late = {phase: seconds for phase, seconds in row.phases.items() if phase not in BEFORE_STEPS}
    before = max(ready - begin - sum(early.values()), 0.0)
    whole = sum(late.values())
    share = min(before / whole, 1.0) if whole else 0.0
    for phase, seconds in early.items():
        kinds["recovery" if cause else PHASES[phase], cause, PARTS[phase] if cause else ""] += seconds
    kinds["recovery" if cause else "start and join", cause, "first step"] += whole * share
    buckets = _late(row, late, 1 - share, context)
    timeout = context.timeouts.get(row.round)
    if fault and fault.since is not None and timeout is None:
        kind = ("idle after a hang", fault.cause, "") if fault.outcome else ("recovery", fault.cause, "detect")
        _move(buckets, _overlap(begin, row.time, fault.since, fault.time), kind)
    for kind, seconds in buckets.items():
        kinds[kind] += seconds
    if fault and timeout:  # also before the first step: a script may have none
        waited, cause = timeout
        since = max(fault.time - waited, fault.since or 0.0)
        _move(kinds, _overlap(begin, row.time, since, fault.time), ("idle after a hang", cause, ""))
    return _Span(begin, row.time, {kind: seconds for kind, seconds in kinds.items() if seconds > 0})


def _late(row: Row, late: Mapping[str, float], share: float, context: _Context) -> dict[Kind, float]:
    """What the phases after the first step count as."""
    kinds: dict[Kind, float] = defaultdict(float)
    for phase, seconds in late.items():
        part = "script" if phase == "FINISHING" else ""
        kinds[PHASES.get(phase, UNKNOWN), "", part] += seconds * share
    training = kinds.get(("training", "", ""), 0.0)
    wait = min(context.waits.of(row) * share, training)
    if wait:
        kinds["training", "", ""] -= wait
        kinds["waiting for a peer", "", "in steps"] += wait
    if again := context.repeated(row):
        for kind in (*((one, "", "") for one in IN_STEPS), ("waiting for a peer", "", "in steps")):
            if seconds := kinds.get(kind, 0.0) * again:
                kinds[kind] -= seconds
                kinds["repeated steps", "", ""] += seconds
    return kinds


def _overlap(begin: float, end: float, since: float, until: float) -> float:
    """The seconds that are in both intervals."""
    return max(min(end, until) - max(begin, since), 0.0)


def _move(kinds: dict[Kind, float], idle: float, into: Kind) -> None:
    """Count so many seconds as another kind, in proportion from all."""
    whole = sum(kinds.values())
    part = min(idle / whole, 1.0) if whole else 0.0
    for kind in kinds:
        kinds[kind] *= 1 - part
    if part:
        kinds[into] = kinds.get(into, 0.0) + whole * part


def _lay(spans: Iterable[_Span], begin: float, end: float, totals: dict[Kind, float]) -> tuple[float, float]:
    """Lay a node's spans one after the other, and add them up; returns the seconds that are unknown, and overlaps."""
    at, unknown, overlap = begin, 0.0, 0.0
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        start, stop = max(span.start, begin), min(span.end, end)
        if stop <= start:
            continue
        if start < at - ROUNDING:
            overlap += min(at, stop) - start
        unknown += max(start - at, 0.0)
        start = max(start, at)
        if stop <= start:
            continue
        whole = sum(span.kinds.values())
        for kind, weight in span.kinds.items():
            totals[kind] += (stop - start) * (weight / whole) if whole else 0.0
        unknown += 0.0 if whole else stop - start
        at = stop
    unknown += max(end - at, 0.0) + 0.0
    unknown += totals.pop((UNKNOWN, "", ""), 0.0)
    return unknown, overlap


def _summary(
    job: JobHistory,
    end: float,
    whole: float,
    totals: Mapping[Kind, float],
    *,
    unknown: float,
    overlap: float,
    carried: float,
    context: _Context,
) -> Goodput:
    by_name: dict[str, list[Share]] = {name: [] for name in BUCKETS}
    for (name, cause, part), seconds in sorted(totals.items(), key=lambda one: -one[1]):
        by_name[name].append(Share(part=part, cause=cause, seconds=seconds))
    spent = {name: sum(one.seconds for one in parts) for name, parts in by_name.items()}
    in_steps = sum(one.seconds for one in by_name["waiting for a peer"] if one.part == "in steps")
    productive = spent["training"] + spent["data wait"] + in_steps
    admitted = whole - spent["queue"]
    return Goodput(
        name=job.name,
        namespace=job.namespace,
        nodes=job.nodes,
        elapsed_seconds=end - job.submitted,
        node_seconds=whole,
        buckets=tuple(
            Bucket(
                name=name,
                seconds=spent[name],
                share=spent[name] / whole if whole else 0.0,
                parts=tuple(parts) if any(one.part or one.cause for one in parts) else (),
            )
            for name, parts in by_name.items()
        ),
        unknown_seconds=unknown,
        overlap_seconds=overlap,
        carried_seconds=carried,
        goodput=spent["training"] / whole if whole else 0.0,
        ettr=productive / whole if whole else 0.0,
        ettr_since_admission=productive / admitted if admitted > 0 else 0.0,
        repeated_steps=context.repeated_steps,
        faults=len({one.round for one in context.faults}),
        clock_jump_seconds=history.clock_jump(job, context.logs),
    )
