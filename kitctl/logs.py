"""Many streams of lines into one, in the order of time, and which of them a person wants. Pure.

A line comes as kubelet writes it, ``<RFC 3339 time> <text>``; the local target writes the same. Its rank is the
prefix that the agent puts in front (``[rank 7]: ``), which stays true when ranks move between nodes.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

_RANK = re.compile(r"\[rank (\d+)\]: ?")


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """One line; ``time`` is RFC 3339 in UTC with fixed width, so that text order is time order."""

    time: str
    node: int
    text: str = field(compare=False)

    @property
    def rank(self) -> int | None:
        """The rank that wrote it, or None: the agent's own words."""
        match = _RANK.match(self.text)
        return int(match[1]) if match else None


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which lines are wanted; empty means all."""

    ranks: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()
    since: str = ""
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None

    def wants(self, line: Line) -> bool:
        """Whether a line passes."""
        return (
            (not self.nodes or line.node in self.nodes)
            and (not self.ranks or line.rank in self.ranks)
            and line.time >= self.since
            and (self.include is None or self.include.search(line.text) is not None)
            and (self.exclude is None or self.exclude.search(line.text) is None)
        )


def parse(raw: str, node: int) -> Line:
    """Split ``<time> <text>``; a line without a time sorts where it stands, before the next one that has one."""
    time, _, text = raw.rstrip("\n").partition(" ")
    return Line(time, node, text) if time[:2] == "20" and time.endswith("Z") else Line("", node, raw.rstrip("\n"))


def merge(streams: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """Streams that are each in order as one that is; holds one line a stream in memory."""
    return heapq.merge(*streams)


def tail(lines: Iterable[Line], count: int | None) -> Iterable[Line]:
    """The last ``count`` lines, or all; holds no more than ``count`` in memory."""
    return lines if count is None else deque(lines, maxlen=count)


def settle(batches: Iterable[list[Line]], horizon: Callable[[], str]) -> Iterator[Line]:
    """Order lines that arrive in batches: each waits until ``horizon`` has passed its time.

    Lines of different nodes arrive with different delay; a short wait puts nearly all of them in order without
    holding back anybody for long. A batch may be empty: it only says that time has passed.
    """
    waiting: list[Line] = []
    for batch in batches:
        for line in batch:
            heapq.heappush(waiting, line)
        limit = horizon()
        while waiting and waiting[0].time <= limit:
            yield heapq.heappop(waiting)
    while waiting:
        yield heapq.heappop(waiting)
