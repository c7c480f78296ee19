"""What one node did and when: from the moments of its processes, the states of its agents, the phases of its ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from kitctl.state.goodput.context import CARRIED, Context
from kitctl.state.goodput.kinds import UNKNOWN, Kind, Span
from kitctl.state.goodput.waits import ROUNDING
from kitctl.state.history import Attempt, JobHistory, WriterLog
from kitjob.buckets import BEFORE_STEPS, IN_STEPS, PHASES
from kitjob.timeline import AgentState, Event, Row

PARTS: Final[Mapping[str, str]] = {  # of a recovery, by phase; what comes before the first step otherwise is its part
    "STARTING": "start",
    "JOINING": "join",
    "PREPARING": "restore",
    "RESTORING": "restore",
}
STATE_PARTS: Final[Mapping[str, str]] = {"code": "start", "start": "start", "join": "form", "stop": "stop"}


def of_node(job: JobHistory, node: int, context: Context, end: float) -> tuple[list[Span], float]:
    """The spans of a node in order, and the seconds that are carried on from the last lines of killed agents.

    Args:
        job: with the starts of its nodes' processes.
        node: its index.
        context: of all nodes.
        end: of the job, or now.
    """
    found = _Node(job, node, context, end)
    found.walk()
    return found.spans, found.carried


class _Node:
    """What is known of a node up to one of its agents."""

    def __init__(self, job: JobHistory, node: int, context: Context, end: float) -> None:
        self._job, self._context, self._end = job, context, end
        self._attempts = [one for one in job.attempts if one.node == node]
        self._logs = [one for one in context.logs if one.writer.node == node]
        self._gone = ""  # what the time after the last agent counts as; empty: it runs
        self._cause = ""  # of the recovery that goes on; empty: none does
        self.spans = [*_before_start(job, self._attempts, self._logs, end)]
        self.carried = 0.0

    def walk(self) -> None:
        """Add all agents, and the time since the last one."""
        for log, following in zip_longest(self._logs, self._logs[1:]):
            self._add(log, following.writer.time if following else None)
        self._add_rest()

    def _add(self, log: WriterLog, following: float | None) -> None:
        """An agent, and the time before it; ``following`` is when the next one began."""
        attempt = _attempt(self._attempts, log)
        if log is not self._logs[0]:
            self.spans += _between(self._job, self.spans, attempt, log, self._gone, self._cause)
        elif attempt and attempt.started is not None:
            self.spans.append(Span(attempt.started, log.writer.time, {("start and join", "", ""): 1.0}))
        own, self._cause = _written(log, self._context, self._cause)
        self.spans += own
        stop = _stop(attempt, following, self._job, self._context, log, self._end)
        if log.ending is None and stop > log.last:
            self._add_after_kill(log, own, stop)
            if attempt and attempt.done and following is None:
                self._gone = "ended"  # its last lines are missing, as of a tail that could not be written
            elif following is not None or (attempt and attempt.ended):
                self._cause = self._context.cause(stop, attempt.how if attempt else "") or "node lost"
                self._gone = "recovery"
            return
        self._gone = _after(log.ending)
        self._cause = self._cause if self._gone == "recovery" else ""
        last = self.spans[-1].end if self.spans else log.last
        if stop > last:
            self.spans.append(Span(last, stop, {(self._gone, self._cause, ""): 1.0}))

    def _add_after_kill(self, log: WriterLog, own: Sequence[Span], stop: float) -> None:
        """What an agent did between its last line and its end is taken to be what it did before."""
        tail = min(stop, log.last + CARRIED) - log.last
        if own and tail > 0:
            self.spans.append(Span(log.last, log.last + tail, own[-1].kinds))
            self.carried += tail

    def _add_rest(self) -> None:
        """The time since the last agent, unless that one runs, or nothing is known of its end."""
        ended = not self._logs or self._logs[-1].ending is not None or (self._attempts and self._attempts[-1].ended)
        if not (self.spans and self._gone and ended):
            return
        kind = (self._gone, self._cause, "replace") if self._gone == "recovery" else (self._gone, "", "")
        pending = self._attempts[-1] if self._attempts and self._attempts[-1].started is None else None
        self.spans += _without_process(self._job, self.spans[-1].end, self._end, kind, pending)


def _before_start(
    job: JobHistory, attempts: Sequence[Attempt], logs: Sequence[WriterLog], end: float
) -> Iterator[Span]:
    """From the submission to the first start of the node's process."""
    first = attempts[0] if attempts else None
    if logs and first and first.started is not None:
        first = _attempt(attempts, logs[0])  # None: its pod is gone, and with it when it was scheduled and started
    starts = [one.writer.time for one in logs[:1]]
    if first and first.started is not None:
        starts.append(first.started)
    yield from _without_process(job, job.submitted, min(starts, default=end), None, first)


def _between(
    job: JobHistory, spans: Sequence[Span], attempt: Attempt | None, log: WriterLog, gone: str, cause: str
) -> Iterator[Span]:
    """From the end of one agent to the first line of the next."""
    at = spans[-1].end if spans else log.writer.time
    known = attempt if attempt and attempt.started is not None and attempt.started >= at else None
    began = known.started if known and known.started is not None else log.writer.time
    recovering = gone == "recovery"
    lost = (gone or UNKNOWN, cause if recovering else "", "replace" if recovering else "")
    yield from _without_process(job, at, began, lost, known)
    kind = ("recovery", cause, "start") if recovering else ("start and join", "", "")
    yield Span(began, log.writer.time, {kind: 1.0})


def _without_process(
    job: JobHistory, at: float, until: float, otherwise: Kind | None, attempt: Attempt | None
) -> Iterator[Span]:
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
            yield Span(at, since, {otherwise: 1.0})
        yield Span(since, ready, {("queue", "", ""): 1.0})
        at, placing = ready, True
    if attempt and attempt.created is not None and otherwise and otherwise[0] == "drained" and at < attempt.created:
        yield Span(at, min(attempt.created, until), {otherwise: 1.0})
        at, placing = min(attempt.created, until), True
    if attempt and placing:
        yield from _placed(attempt, at, until)
    elif otherwise:
        yield Span(at, until, {otherwise: 1.0})


def _placed(attempt: Attempt, at: float, until: float) -> Iterator[Span]:
    """From when a node might have been placed to the start of its process."""
    if attempt.scheduled is not None and attempt.scheduled > at:
        yield Span(at, attempt.scheduled, {("placement", "", ""): 1.0})
        at = attempt.scheduled
    yield Span(at, until, {("placement" if attempt.scheduled is None else "image and code", "", ""): 1.0})


def _attempt(attempts: Sequence[Attempt], log: WriterLog) -> Attempt | None:
    """The start of the node that a writer belongs to."""
    before = [one for one in attempts if one.started is not None and one.started <= log.writer.time + CARRIED]
    return before[-1] if before else None


def _stop(
    attempt: Attempt | None,
    following: float | None,
    job: JobHistory,
    context: Context,
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


def _written(log: WriterLog, context: Context, cause: str) -> tuple[list[Span], str]:
    """The spans of one writer, and the cause of the recovery that it is in at its end; empty: it is in none."""
    spans: list[Span] = []
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
            spans.append(Span(state.time, end, {("spare", "", ""): 1.0}))
            cause = context.cause(end, "")  # of the round that it joins, if a fault ended the one before
            continue
        if state.state == "stop":
            seen = faults.get(number)
            cause = (seen.cause if seen else "") or state.cause or "resized"
        spans.append(Span(state.time, end, {_state_kind(state, states[index:], log.ending, cause): 1.0}))
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


def _row(row: Row, context: Context, cause: str, first: float | None, fault: Event | None) -> Span:
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
    return Span(begin, row.time, {kind: seconds for kind, seconds in kinds.items() if seconds > 0})


def _late(row: Row, late: Mapping[str, float], share: float, context: Context) -> dict[Kind, float]:
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
