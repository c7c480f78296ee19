"""Finds out whether a round ended because a rank left with exit code 0 while others still needed it. Pure.

No single node can see that: one has a rank that ended well, another one whose rank lost its peers. So each node keeps
how its ranks ended, and the nodes exchange that when they form the next round.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kittrain.outcome.failures import Failure

LEFT = "ended with exit code 0"  # a row of the table of causes explains it


@dataclass(kw_only=True)
class Departures:
    """How a node's ranks left a round; times are Unix seconds.

    Attributes:
        round: its number; 0: this node was in none.
        size: how many nodes it had.
        left: the first rank that ended with 0 before it was asked to stop, and when.
        lost: the first rank that lost its peers, and when.
        failed: whether there is another reason: a failure, a hang, a drain.
    """

    round: int = 0
    size: int = 0
    left: tuple[int, float] | None = None
    lost: tuple[int, float] | None = None
    failed: bool = False

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

    def is_first(self, rank: int) -> bool:
        """Whether this was this node's first rank to leave."""
        return self.left is not None and self.left[0] == rank

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON, for the other nodes."""
        return asdict(self)


def departure(nodes: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The failure that explains the last round, if a rank's leaving ended it: its fields, as JSON.

    Only if nothing else can explain it: all nodes of that round are here again, by the same agents, and none knows of a
    failure, a hang or a drain.

    Args:
        nodes: the facts of all nodes of the new round.
    """
    last = max((node["round"] for node in nodes), default=0)
    members = [node for node in nodes if node["round"] == last > 0]
    complete = all(len(members) == node["size"] for node in members)
    left = min((node["left"] for node in members if node["left"]), key=_when, default=None)
    lost = min((node["lost"] for node in members if node["lost"]), key=_when, default=None)
    if not (members and complete and left and lost) or any(node["failed"] for node in members):
        return None
    (rank, at), (other, noticed) = left, lost
    before = f", {noticed - at:.0f} s before rank {other} lost it" if noticed >= at else f"; rank {other} lost it"
    clock = time.strftime("%H:%M:%S", time.gmtime(at))
    return {"rank": rank, "exit_code": 0, "error": f"{LEFT} at {clock} UTC{before}", "time": int(at)}


def _when(entry: Sequence[float]) -> float:
    return entry[1]
