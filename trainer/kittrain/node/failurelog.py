"""The last failures of a job's ranks, as far as its nodes remember them: how often it was started again, and why."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from kittrain.outcome.failures import Failure

KEPT: Final = 10  # failures


class FailureLog:
    """What one node remembers. Nodes tell each other in each round, so that it outlives any of them."""

    def __init__(self, node_index: int) -> None:
        self._node = node_index
        self.known: list[dict[str, Any]] = []

    def add(self, failure: Failure, ranks: tuple[int, int]) -> None:
        """A failure of one of this node's ranks, which are given as first and last; what followed from it is none."""
        if failure.kind in {"own", "hang"} and ranks[0] <= failure.rank <= ranks[1]:
            told = {"time": round(time.time(), 3), "node": self._node, "rank": failure.rank, "cause": failure.brief}
            self.merge([told])

    def merge(self, told: Iterable[dict[str, Any]]) -> None:
        """What other nodes remember."""
        fresh = [one for one in told if one not in self.known]
        self.known = sorted([*self.known, *fresh], key=lambda one: (one["time"], one["node"]))[-KEPT:]
