"""Finds out whether a round ended because a rank left too early, or because ranks called different collectives. Pure.

A rank that leaves with exit code 0 while others still need it is no failure of any process.

No single node can see that: one has a rank that ended well, another one whose rank lost its peers. So each node keeps
how its ranks ended, and what they called last, and the nodes exchange that when they form the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kittrain.outcome.failures import Failure
from kittrain.system.calls import Call, contradiction

LEFT: Final = "ended with exit code 0"  # rows of the table of causes explain these
FINISHED: Final = "finished the collective in which rank"
CALLED: Final = "called"
BY: Final = ", in sys.exit() at "
AFTER: Final = ", after it had printed: "
MOST_CALLS: Final = 4  # different calls of a node's ranks


@dataclass(kw_only=True)
class Departures:
    """How a node's ranks left a round; times are Unix seconds.

    Attributes:
        round: its number; 0: this node was in none.
        size: how many nodes it had.
        left: the first rank that ended with 0 before it was asked to stop, and when.
        lost: the first rank that lost its peers, and when.
        failed: whether there is another reason: a failure, a hang, a drain.
        calls: the last collective of its ranks, each different one with the first of them.
        said: what the first rank that left complained of at its end; empty: of nothing.
        by: where it has called ``sys.exit()``; empty: not in the middle of a function.
        begun: how many collectives the first rank that left had begun, and the first that lost its peers; 0: unknown.
        elsewhere: where the first rank that lost its peers was: ``rank 0 was at train.py:24``; empty: unknown.
    """

    round: int = 0
    size: int = 0
    left: tuple[int, float] | None = None
    lost: tuple[int, float] | None = None
    failed: bool = False
    calls: list[tuple[int, Call]] = field(default_factory=list)
    said: str = ""
    by: str = ""
    begun: tuple[int, ...] = (0, 0)
    elsewhere: str = ""

    def saw_end(self, said: Callable[[int], str], by: Callable[[int], str] = lambda _: "") -> None:
        """Record what the first rank that left complained of, and where, once all have ended; both are by rank."""
        self.said, self.by = (said(self.left[0]), by(self.left[0])) if self.left else ("", "")

    def saw_calls(self, calls: Sequence[tuple[int, Call]], begun: Mapping[int, int]) -> None:
        """Record what the ranks have called, once they have ended; ``begun`` are all collectives, by rank."""
        self.calls = [one for index, one in enumerate(calls) if one[1] not in [other[1] for other in calls[:index]]]
        del self.calls[MOST_CALLS:]
        self.begun = tuple(begun.get(one[0], 0) if one else 0 for one in (self.left, self.lost))

    def saw_codes(self, ranks: Sequence[int], codes: Sequence[int | None], now: float) -> None:
        """Record exit codes of ranks that were not asked to stop."""
        if self.left is None:
            done = (rank for rank, code in zip(ranks, codes, strict=True) if code == 0)
            self.left = next(((rank, now) for rank in done), None)

    def saw_failure(self, cause: Failure, now: float) -> None:
        """Record this node's root cause."""
        if cause.kind == "peer":
            self.lost = self.lost or (cause.rank, now)
        else:
            self.failed = True

    @property
    def explained(self) -> bool:
        """Whether this node's root cause is known."""
        return self.failed or self.lost is not None

    def has(self, rank: int) -> bool:
        """Whether this was this node's first rank to leave, or one of its calls."""
        return rank in {number for number, _ in [*self.calls, *filter(None, [self.left])]}

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON, for the other nodes."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class _End:
    """How a rank left a round: when, after how many collectives, what it complained of, and where it left."""

    rank: int
    time: float
    begun: int
    said: str
    by: str


def departure(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The failure that explains the last round, if a rank's leaving ended it: its fields, as JSON.

    Only if nothing else can explain it: all nodes of that round are here again, by the same agents, and none knows of a
    failure, a hang or a drain.

    Args:
        nodes: the facts of all nodes of the new round.
    """
    last = max((node["round"] for node in nodes), default=0)
    members = [node for node in nodes if node["round"] == last > 0]
    complete = all(len(members) == node["size"] for node in members)
    if not (members and complete) or any(node["failed"] for node in members):
        return None
    left, lost = _first(members, 0), _first(members, 1)
    if lost is None:
        return None
    if found := contradiction([(rank, Call(**call)) for node in members for rank, call in node["calls"]]):
        return _different(*found, int(lost.time))
    return None if left is None else _left(left, lost)


def _first(members: Sequence[Mapping[str, Any]], which: int) -> _End | None:
    """The first rank that left (0), or that lost its peers (1)."""
    ends = [(one[("left", "lost")[which]], one["begun"][which], one["said"], one["by"]) for one in members]
    found = (_End(rank=end[0], time=end[1], begun=begun, said=said, by=by) for end, begun, said, by in ends if end)
    return min(found, key=lambda one: one.time, default=None)


def _left(left: _End, lost: _End) -> dict[str, Any]:
    """Too early, unless it had come as far as the rank that lost it: to the end of the same collective."""
    clock, ahead = time.strftime("%H:%M:%S", time.gmtime(left.time)), lost.time - left.time
    before = f", {ahead:.0f} s before rank {lost.rank} lost it" if ahead >= 0 else f"; rank {lost.rank} lost it"
    if left.begun >= lost.begun > 0:
        error = f"{FINISHED} {lost.rank} lost it, and ended with exit code 0 at {clock} UTC"
    else:
        error = f"{LEFT} at {clock} UTC{BY * bool(left.by)}{left.by}{before}{AFTER * bool(left.said)}{left.said}"
    return {"rank": left.rank, "exit_code": 0, "error": error, "time": int(left.time)}


def _different(odd: tuple[int, Call], usual: tuple[int, Call], time: int) -> dict[str, Any]:
    """``called all_reduce of [2] float32, where rank 0 called all_reduce of [1] float32``."""
    (rank, mine), (other, theirs) = odd, usual
    error = f"{CALLED} {mine.beside(theirs)}, where rank {other} called {theirs.beside(mine)}"
    return {"rank": rank, "exit_code": 0, "error": error, "time": time}
