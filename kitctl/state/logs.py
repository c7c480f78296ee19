"""Merge log streams by time, and filter their lines. Pure.

Lines are in kubelet's format, ``<RFC 3339 time> <text>``; the local target writes the same. The agent puts the rank in
front (``[rank 7]: ``), since ranks move between nodes.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final

_RANK = re.compile(r"\[rank (\d+)\]: ?")
_PREFIX = re.compile(r"\[(?:rank|agent) \d+\]: ?")


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """One line; ``time`` is RFC 3339 in UTC with fixed width, so text order is time order."""

    time: str
    node: int
    text: str = field(compare=False)

    @property
    def rank(self) -> int | None:
        """The rank that wrote it; None: the agent."""
        match = _RANK.match(self.text)
        return int(match[1]) if match else None

    @property
    def prefix(self) -> str:
        """What names the rank or the agent; empty without."""
        return match[0] if (match := _PREFIX.match(self.text)) else ""

    @property
    def message(self) -> str:
        """The text without the prefix that names the rank or the agent."""
        return self.text[match.end() :] if (match := _PREFIX.match(self.text)) else self.text


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which lines are selected; empty: all."""

    ranks: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()
    since: str = ""
    before: str = ""
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None

    def matches(self, line: Line) -> bool:
        """Whether a line is selected."""
        return (
            (not self.nodes or line.node in self.nodes)
            and (not self.ranks or line.rank in self.ranks)
            and line.time >= self.since
            and (not self.before or line.time < self.before)
            and (self.include is None or self.include.search(line.text) is not None)
            and (self.exclude is None or self.exclude.search(line.text) is None)
        )


ALL: Final = Filter()


def parse(raw: str, node: int) -> Line:
    """Split ``<time> <text>``; a line without a time stays before the next one that has a time."""
    time, _, text = raw.rstrip("\n").partition(" ")
    return Line(time, node, text) if time[:2] == "20" and time.endswith("Z") else Line("", node, raw.rstrip("\n"))


def merge(streams: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """Merge sorted streams; holds one line per stream in memory."""
    return heapq.merge(*streams, key=attrgetter("time", "node"))


def tail(lines: Iterable[Line], count: int | None) -> Iterable[Line]:
    """The last ``count`` lines, or all; holds at most ``count`` in memory."""
    return lines if count is None else deque(lines, maxlen=count)


def reorder(
    batches: Iterable[list[Line]], watermark: Callable[[], str], now: Callable[[], str]
) -> Iterator[list[Line]]:
    """Sort lines that arrive in batches: each is held until ``watermark`` has passed its time.

    Lines of different nodes arrive with different delays; a short wait sorts nearly all of them. A batch may be empty:
    it only lets time pass. A line from the future, by a clock that is ahead, counts as one of its arrival: ``now``.
    """
    waiting: list[tuple[str, Line]] = []
    for batch in batches:
        arrived = now()
        if batch:
            waiting += [(min(line.time, arrived), line) for line in batch]
            waiting.sort()  # runs of lines that are in order already, one of each node
        count = bisect_right(waiting, watermark(), key=itemgetter(0))
        yield [line for _, line in waiting[:count]]
        del waiting[:count]
    yield [line for _, line in waiting]
