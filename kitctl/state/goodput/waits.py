"""How long a node waited for the slowest rank of all nodes. Pure.

A row says what a second was spent on, but not when within it. When an evaluation of a script's own loop begins or ends
is known from the row beside it: without, the seconds in which it does would hide that others wait for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from typing import Final, NamedTuple

from kitctl.state.history import WriterLog
from kitjob.timeline import Row

SYNCHRONOUS: Final = frozenset({"BACKWARD", "SYNCING", "COMPUTING", "SCRIPT"})  # phases that include waiting for others
BUSY: Final = frozenset({"DATA", "FORWARD", "UPDATING"})
EVALUATING: Final = "EVALUATING"
ROUNDING: Final = 0.002  # seconds


class Waits:
    """The waits of a job's nodes, of which ``logs`` are all."""

    def __init__(self, logs: Sequence[WriterLog]) -> None:
        rows: dict[int, list[_Own]] = defaultdict(list)
        for one in (one for log in logs for one in _own(log.rows)):
            rows[one.row.round].append(one)
        self._slowest = {number: _Slowest([*_rates(own)]) for number, own in rows.items()}

    def of(self, row: Row) -> float:
        """Seconds of a row in which its ranks waited for the slowest rank of all nodes."""
        if (slowest := self._slowest.get(row.round)) is None:
            return 0.0
        needed = slowest.until(row.time) - slowest.until(_begin(row))
        own = row.busy if row.of_own_loop else sum(row.phases.get(phase, 0.0) for phase in BUSY)
        most = sum(row.phases.get(phase, 0.0) for phase in SYNCHRONOUS)
        return min(max(needed - own, 0.0), most)


class _Own(NamedTuple):
    """A row, and the part of it that is known to be an evaluation; empty: none is."""

    row: Row
    begin: float
    end: float


def _own(rows: Sequence[Row]) -> Iterator[_Own]:
    """The rows of a node, with evaluations that last from one row to another: the first one ends with it."""
    for evaluates, found in groupby((row for row in rows if row.seconds > 0), _evaluates):
        own = [*found]
        for index, row in enumerate(own):
            begin, seconds = _begin(row), row.phases.get(EVALUATING, 0.0)
            if not evaluates or len(own) == 1:
                yield _Own(row, begin, begin)
            elif index == 0:
                yield _Own(row, row.time - seconds, row.time)
            elif index == len(own) - 1 or seconds >= row.seconds - ROUNDING:
                yield _Own(row, begin, begin + seconds)
            else:  # it ends and begins again, nobody knows when
                yield _Own(row, begin, begin)


def _evaluates(row: Row) -> bool:
    return row.of_own_loop and row.phases.get(EVALUATING, 0.0) > 0


def _begin(row: Row) -> float:
    return row.time - row.seconds


def _rates(rows: Sequence[_Own]) -> Iterator[tuple[float, float, float]]:
    """Intervals, and which share of each a node was busy: all of it while one evaluates, so its steps were outside."""
    evaluations = _union([(one.begin, one.end) for one in rows if one.end > one.begin])
    for begin, end in evaluations:
        yield begin, end, 1.0
    for row, begin, end in rows:
        parts = [*_outside(_begin(row), row.time, evaluations)]
        seconds = sum(end - begin for begin, end in parts)
        for part in parts:
            yield *part, min(max(row.busy - (end - begin), 0.0) / seconds, 1.0)


def _union(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same intervals in order and apart."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _outside(begin: float, end: float, others: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The parts of an interval outside of others, which are in order and apart."""
    index = bisect_left(others, begin, key=lambda other: other[1])
    while index < len(others) and others[index][0] < end:
        if begin < others[index][0]:
            yield begin, others[index][0]
        begin = others[index][1]
        index += 1
    if begin < end:
        yield begin, end


class _Slowest:
    """The seconds in which the slowest rank of a group did not wait for others, summed up over time."""

    def __init__(self, spans: Sequence[tuple[float, float, float]]) -> None:
        self._moments: list[float] = []
        self._sums: list[float] = []
        active: list[tuple[float, float]] = []  # the largest rate first, with its end
        begins, total = sorted(spans), 0.0
        cuts = sorted({moment for begin, end, _ in spans for moment in (begin, end)})
        at = 0
        for index, cut in enumerate(cuts):
            self._moments.append(cut)
            self._sums.append(total)
            while at < len(begins) and begins[at][0] <= cut:
                heappush(active, (-begins[at][2], begins[at][1]))
                at += 1
            while active and active[0][1] <= cut:
                heappop(active)
            if active and index + 1 < len(cuts):
                total -= active[0][0] * (cuts[index + 1] - cut)

    def until(self, time: float) -> float:
        """From the beginning to this moment."""
        index = bisect_right(self._moments, time)
        if index == 0:
            return 0.0
        if index == len(self._moments):
            return self._sums[-1]
        begin, end = self._moments[index - 1 : index + 1]
        low, high = self._sums[index - 1 : index + 1]
        return low + (high - low) * (time - begin) / (end - begin)
