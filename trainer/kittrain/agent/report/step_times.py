"""How long steps take on each rank, as the hub compares them: the slowest of each node, and ranks that are slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kitjob.report import NodeAssignment


class StepTimes:
    """Of a round's ranks.

    Args:
        log: receives a line for each slow rank.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._timings: Mapping[str, Mapping[str, float]] = {}
        self._told: set[str] = set()

    def begin(self) -> None:
        """A round begins."""
        self._timings, self._told = {}, set()

    def observe(self, timings: Mapping[str, Mapping[str, float]] | None) -> None:
        """Take the step times of all ranks, as ``Rendezvous.step_timings`` gives them; None: nothing new."""
        self._timings = timings or self._timings
        for rank, ratio in self.slow.items():
            if rank not in self._told:
                self._told.add(rank)
                self._log(f"rank {rank} is slow: its steps take {ratio:.1f} times as long as the others'")

    @property
    def slow(self) -> dict[str, float]:
        """The slow ranks: how many times longer than those of others their steps take."""
        return dict(self._timings.get("slow", {}))

    def slowest(self, nodes: Mapping[str, NodeAssignment]) -> dict[str, float]:
        """The busy seconds of a step of each node's slowest rank: a ConfigMap has no room for each rank's."""
        busy = {int(rank): seconds for rank, seconds in self._timings.get("busy", {}).items()}
        found = {}
        for index, node in nodes.items():
            first, last = node.ranks
            if known := [busy[rank] for rank in range(first, last + 1) if rank in busy]:
                found[index] = round(max(known), 4)
        return found
