"""Lays the intervals of all nodes one after the other, and adds them up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kitctl.state import history
from kitctl.state.goodput import spans
from kitctl.state.goodput.context import Context
from kitctl.state.goodput.kinds import BUCKETS, UNKNOWN, Kind, Span
from kitctl.state.goodput.result import Bucket, Goodput, Share
from kitctl.state.goodput.waits import ROUNDING
from kitctl.state.history import JobHistory, WriterLog, writers


def account(job: JobHistory, logs: Sequence[WriterLog] | None = None) -> Goodput:
    """Where a job's node-seconds went; ``logs`` are those of ``writers``, if they are known."""
    context, end = Context(writers(job) if logs is None else logs), _end(job)
    sums = _Sums()
    for node in range(job.nodes):
        found, carried = spans.of_node(job, node, context, end)
        sums.lay(found, job.submitted, end)
        sums.carried += carried
    return _summary(job, end - job.submitted, sums, context)


class Stretch(NamedTuple):
    """A time in which a node did one thing for the most part: seconds since the submission."""

    begin: float
    end: float
    bucket: str


def lanes(job: JobHistory, logs: Sequence[WriterLog] | None = None) -> list[list[Stretch]]:
    """What each node did, in order: of each moment the bucket that most of it counts as; ``logs`` as above."""
    context, end = Context(writers(job) if logs is None else logs), _end(job)
    return [[*_stretches(spans.of_node(job, node, context, end)[0], job.submitted, end)] for node in range(job.nodes)]


def _end(job: JobHistory) -> float:
    return max(job.now if job.ended is None else job.ended, job.submitted)


def _stretches(found: Iterable[Span], begin: float, end: float) -> Iterator[Stretch]:
    current: Stretch | None = None
    for span in sorted(found, key=lambda one: (one.start, one.end)):
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


class _Sums:
    """Node-seconds of all nodes.

    Attributes:
        of: by kind.
        unknown: that no measurement covers.
        overlap: that two cover.
        carried: see ``Goodput.carried_seconds``.
    """

    def __init__(self) -> None:
        self.of: dict[Kind, float] = defaultdict(float)
        self.unknown = self.overlap = self.carried = 0.0

    def lay(self, found: Iterable[Span], begin: float, end: float) -> None:
        """Lay a node's spans one after the other, and add them up."""
        at = begin
        for span in sorted(found, key=lambda one: (one.start, one.end)):
            start, stop = max(span.start, begin), min(span.end, end)
            if stop <= start:
                continue
            if start < at - ROUNDING:
                self.overlap += min(at, stop) - start
            self.unknown += max(start - at, 0.0)
            start = max(start, at)
            if stop > start:
                self._add(span, stop - start)
                at = stop
        self.unknown += max(end - at, 0.0) + self.of.pop((UNKNOWN, "", ""), 0.0)

    def _add(self, span: Span, seconds: float) -> None:
        whole = sum(span.kinds.values())
        for kind, weight in span.kinds.items():
            self.of[kind] += seconds * (weight / whole) if whole else 0.0
        self.unknown += 0.0 if whole else seconds


def _summary(job: JobHistory, elapsed: float, sums: _Sums, context: Context) -> Goodput:
    whole = elapsed * job.nodes
    by_name: dict[str, list[Share]] = {name: [] for name in BUCKETS}
    for (name, cause, part), seconds in sorted(sums.of.items(), key=lambda one: -one[1]):
        by_name[name].append(Share(part=part, cause=cause, seconds=seconds))
    spent = {name: sum(one.seconds for one in parts) for name, parts in by_name.items()}
    in_steps = sum(one.seconds for one in by_name["waiting for a peer"] if one.part == "in steps")
    productive = spent["training"] + spent["data wait"] + in_steps
    admitted = whole - spent["queue"]
    return Goodput(
        name=job.name,
        namespace=job.namespace,
        nodes=job.nodes,
        elapsed_seconds=elapsed,
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
        unknown_seconds=sums.unknown,
        overlap_seconds=sums.overlap,
        carried_seconds=sums.carried,
        goodput=spent["training"] / whole if whole else 0.0,
        ettr=productive / whole if whole else 0.0,
        ettr_since_admission=productive / admitted if admitted > 0 else 0.0,
        repeated_steps=context.repeated_steps,
        faults=len({one.round for one in context.faults}),
        clock_jump_seconds=history.clock_jump(job, context.logs),
    )
