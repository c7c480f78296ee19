"""A job's history as it was written by agents and by what runs them: put on one clock, in order. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, TypeAlias

import msgspec

from kitjob import timeline
from kitjob.record import replace
from kitjob.timeline import AgentState, Clock, Event, Row, Writer

SAME: Final = 5.0  # seconds in which the nodes of a group notice its end
CLOCK_JUMP: Final = 60.0  # seconds; clocks of machines that are kept right differ by less
DRAINING: Final = 30.0  # seconds between the loss of a drained node's ranks and its agent's end
RUN_LINE: Final = b'{"run"'
_ENDED_RANKS: Final = re.compile(r"the ranks of node (\d+)(?:, pod \S+)? have failed$")  # as the hub says it
Timed: TypeAlias = AgentState | Event | Row


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a node, as the supervisor or the API server knows it; times are Unix seconds."""

    node: int
    created: float | None = None
    scheduled: float | None = None
    started: float | None = None
    ended: float | None = None
    how: str = ""  # it ended, if it was lost
    done: bool = False  # it ended by itself, with exit code 0


class QueueWait(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a job waited for quota, in Unix seconds; ``until`` is None while it waits."""

    since: float
    until: float | None = None


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job's past; ``lines`` are those of ``kittrain.helper.history``."""

    name: str
    namespace: str
    nodes: int
    submitted: float
    now: float
    ended: float | None = None
    result: str = ""
    suspended: bool = False
    run: str = ""
    waits: tuple[QueueWait, ...] = ()  # in a queue, in order
    attempts: tuple[Attempt, ...] = ()
    lines: bytes = b""


class WriterLog(msgspec.Struct, frozen=True, kw_only=True):
    """What one start of an agent wrote, on the run's clock."""

    writer: Writer
    lines: tuple[Timed, ...]
    clock_jump: float = 0.0  # seconds by which the run's clock moved against this writer's steady one

    @property
    def states(self) -> list[AgentState]:
        """What the agent did, in order."""
        return [line for line in self.lines if isinstance(line, AgentState)]

    @property
    def rows(self) -> list[Row]:
        """What its ranks did."""
        return [line for line in self.lines if isinstance(line, Row)]

    @property
    def events(self) -> list[Event]:
        """What happened."""
        return [line for line in self.lines if isinstance(line, Event)]

    @property
    def ending(self) -> Event | None:
        """How the agent ended; None: it was killed, or runs."""
        return next((one for one in reversed(self.events) if one.what in {"ended", "drained"}), None)

    @property
    def last(self) -> float:
        """The last moment that it wrote of."""
        return max((line.time for line in self.lines if not isinstance(line, Event)), default=self.writer.time)


def writers(job: JobHistory) -> list[WriterLog]:
    """What each start of an agent of the job's run wrote, sorted by time; lines of other runs are left out."""
    found: dict[str, list[list[timeline.Line]]] = defaultdict(list)
    wanted, ours = _run(job), False
    current: list[timeline.Line] = []
    for text in job.lines.split(b"\n"):
        if text.startswith(RUN_LINE):
            ours, current = _named(text) == wanted, []
        elif ours and (line := timeline.decode(text)):
            if isinstance(line, Writer):
                current = [line]
                found[line.id].append(current)
            else:
                current.append(line)
    # Of lines that are in two files, as after a kill while these were joined, the longer part counts.
    logs = [_log(max(parts, key=len)) for parts in found.values()]
    return _without_drains(_renumbered(sorted(logs, key=lambda one: (one.writer.time, one.writer.node))))


def clock_jump(job: JobHistory, logs: Sequence[WriterLog]) -> float:
    """Seconds by which times contradict an order that is known without a clock: one was set meanwhile. 0: none do.

    A job is submitted before it runs, and ends after it ran, the supervisor numbers its starts, and a machine has one
    agent of a node at a time. A writer's own clock is steady, so another distance from the run's clock is a jump, too.
    """
    found = [log.clock_jump for log in logs]
    end = job.now if job.ended is None else job.ended
    found += (job.submitted - time for time in (*(log.writer.time for log in logs), end))
    if job.result in {"", "Succeeded"}:  # of others nodes may drain after the end
        found += (log.last - end for log in logs)
        found += (time - end for one in job.attempts for time in (one.started, one.ended) if time is not None)
    starts = [(one.node, one.started) for one in job.attempts if one.started is not None and one.created is None]
    found += (one - other for (node, one), (same, other) in pairwise(starts) if node == same)
    ordered = sorted(logs, key=lambda log: (log.writer.node, log.writer.host, log.writer.time))
    for (_, host), group in groupby(ordered, key=lambda log: (log.writer.node, log.writer.host)):
        found += (one.last - other.writer.time for one, other in pairwise(group) if host)
    largest = max(found, default=0.0)
    return largest if largest > CLOCK_JUMP else 0.0


def events(job: JobHistory, logs: Iterable[WriterLog] | None = None) -> list[Event]:
    """One timeline of what the target and the agents know: sorted, with each end of a group once."""
    logs = writers(job) if logs is None else logs
    return sorted([*_target_events(job), *_once(event for log in logs for event in log.events)], key=_time)


def rows(logs: Iterable[WriterLog]) -> list[Row]:
    """The rows of nodes with rank 0; where none has a loss or a throughput those of the lowest node. Sorted by time."""
    logs = list(logs)
    leading = [row for log in logs for row in log.rows if row.loss is not None or row.samples_per_second is not None]
    first = min((log.writer.node for log in logs), default=0)
    return sorted(leading or [row for log in logs if log.writer.node == first for row in log.rows], key=_time)


def _run(job: JobHistory) -> str:
    """The run whose history it is: the job's if there is one, else the newest."""
    runs = [_named(text) for text in job.lines.split(b"\n") if text.startswith(RUN_LINE)]
    return job.run or (runs[-1] if runs else "")


def _named(text: bytes) -> str:
    try:
        return str(msgspec.json.decode(text)["run"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return ""


def _log(lines: list[timeline.Line]) -> WriterLog:
    """A writer's lines, with node 0's times."""
    writer, *rest = lines
    assert isinstance(writer, Writer)
    clocks = [line for line in lines if isinstance(line, Clock)]

    def moved(line: Timed) -> Timed:
        before = [clock for clock in clocks if clock.time <= line.time]
        offset = (before[-1] if before else clocks[0]).offset if clocks else 0.0
        since = getattr(line, "since", None)
        shifted = replace(line, time=line.time + offset)
        return shifted if since is None else replace(shifted, since=since + offset)

    known = tuple(moved(line) for line in rest if isinstance(line, AgentState | Event | Row))
    return WriterLog(
        writer=replace(writer, time=writer.time + (clocks[0].offset if clocks else 0.0)),
        lines=known,
        clock_jump=max((abs(after.offset - before.offset) for before, after in pairwise(clocks)), default=0.0),
    )


def _renumbered(logs: Sequence[WriterLog]) -> list[WriterLog]:
    """With a number of its own for each group: agents begin at 1 again where none is left who knew the last one."""
    joins = sorted(
        (event.time, index, event.round)
        for index, log in enumerate(logs)
        for event in log.events
        if event.what == "joined"
    )
    found: dict[tuple[int, int], int] = {}
    group, last, nodes = 0, 0, set[int]()
    for _, index, number in joins:
        node = logs[index].writer.node
        if number != last or node in nodes:
            group, last, nodes = group + 1, number, set()
        nodes.add(node)
        found[index, number] = group

    def renumbered(index: int, line: Timed) -> Timed:
        if isinstance(line, AgentState) or not line.round:
            return line
        return replace(line, round=found.get((index, line.round), line.round))

    return [
        msgspec.structs.replace(log, lines=tuple(renumbered(index, line) for line in log.lines))
        for index, log in enumerate(logs)
    ]


def _without_drains(logs: Sequence[WriterLog]) -> list[WriterLog]:
    """Without faults that were none: a script that does not drain loses the ranks of a node that is asked to stop.

    The other nodes see that sooner than why it is. They form a group without it, or are asked to stop themselves.
    """
    drains: dict[int, list[float]] = defaultdict(list)
    for log in logs:
        if log.ending and log.ending.what == "drained":
            drains[log.writer.node].append(log.ending.time)

    def was_none(line: Timed) -> bool:
        if not isinstance(line, Event) or line.what != "fault" or not (ended := _ENDED_RANKS.match(line.cause)):
            return False
        return any(abs(time - line.time) < DRAINING for time in drains[int(ended[1])])

    return [msgspec.structs.replace(log, lines=tuple(line for line in log.lines if not was_none(line))) for log in logs]


def _once(found: Iterable[Event]) -> Iterator[Event]:
    """Without what each node of a group says of the whole of it."""
    seen: dict[tuple[str, int], Event] = {}
    for event in sorted(found, key=_time):
        key = (event.what, event.round)
        if event.what not in {"joined", "first step", "resized", "fault"}:
            yield event
        elif (first := seen.get(key)) is None or event.time > first.time + max(SAME, 0.0):
            seen[key] = event
            yield event


def _target_events(job: JobHistory) -> Iterator[Event]:
    yield Event(time=job.submitted, what="submitted")
    for wait in job.waits:
        yield Event(time=wait.since, what="queued")
        if wait.until is not None:
            yield Event(time=wait.until, what="admitted")
    for one in job.attempts:
        if one.scheduled is not None:
            yield Event(time=one.scheduled, what="scheduled", node=one.node)
        if one.started is not None and one.scheduled is not None:
            yield Event(time=one.started, what="pulled", node=one.node)
        if one.ended is not None and one.how:
            yield Event(time=one.ended, what="fault", node=one.node, cause=one.how)
    if job.ended is not None:
        yield Event(time=job.ended, what="ended", outcome=job.result.lower())


def _time(line: Timed) -> float:
    return line.time
