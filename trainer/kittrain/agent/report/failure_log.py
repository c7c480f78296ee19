"""The last failures of a job's ranks, for the report."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from kitjob.report import PastFailure
from kittrain.outcome.failures import Failure

LIMIT: Final = 10  # failures


class FailureLog:
    """The failures that this node knows. Nodes exchange them in each round, so they survive the loss of any node."""

    def __init__(self, node_index: int) -> None:
        self._node = node_index
        self.known: list[PastFailure] = []

    def add(self, failure: Failure, ranks: tuple[int, int]) -> None:
        """Add a failure of one of this node's ranks (given as first and last); consequences of it are ignored."""
        if failure.kind in {"own", "left", "hang"} and ranks[0] <= failure.rank <= ranks[1]:
            now = round(time.time(), 3)
            known = {"cause": failure.brief, "fix": failure.cause.fix, "code": failure.cause.code}
            self.merge([PastFailure(time=now, node=self._node, rank=failure.rank, **known)])

    def merge(self, failures: Iterable[PastFailure]) -> None:
        """Add failures that other nodes know."""
        fresh = [one for one in failures if one not in self.known]
        self.known = sorted([*self.known, *fresh], key=lambda one: (one.time, one.node))[-LIMIT:]
