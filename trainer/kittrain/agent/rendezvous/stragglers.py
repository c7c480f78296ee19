"""Finds stragglers: ranks that are slower than the others, by the time each is busy in a step. Rules without clocks.

All ranks end a step together, so a step's duration does not show which rank is slow. The time that each rank is busy
before it waits for the others does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Final

SLOW: Final = 1.3  # times the duration of a step without the slowest rank
LASTING: Final = 3  # checks in a row


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """Mean seconds of a rank's recent steps: their duration, and how long the rank was busy."""

    step: float
    busy: float


class StragglerDetector:
    """Step timings of the current round's ranks. ``now`` is in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int, float]] = {}
        self._timings: dict[int, StepTiming] = {}
        self._slow_checks: Counter[int] = Counter()

    def reset(self) -> None:
        """A round was formed: its ranks are new."""
        self._last.clear()
        self._timings.clear()
        self._slow_checks.clear()

    def update(self, progress: Mapping[int, tuple[int, float]], now: float) -> None:
        """Take a node's progress: for each of its ranks the finished steps, and the busy seconds in all of them."""
        for rank, (steps, busy) in progress.items():
            last_now, last_steps, last_busy = self._last.get(rank, (now, steps, busy))
            if steps > last_steps:
                count = steps - last_steps
                self._timings[rank] = StepTiming(step=(now - last_now) / count, busy=(busy - last_busy) / count)
            self._last[rank] = (now, steps, busy)

    def slow(self) -> dict[int, float]:
        """Stragglers, each with how many times longer than the others' its steps take. Call it at equal intervals."""
        ratios = self._ratios()
        self._slow_checks = Counter(
            {rank: self._slow_checks[rank] + 1 for rank, ratio in ratios.items() if ratio >= SLOW}
        )
        return {rank: round(ratios[rank], 2) for rank, checks in sorted(self._slow_checks.items()) if checks >= LASTING}

    def busy(self) -> dict[int, float]:
        """Seconds of a step that each rank is busy."""
        return {rank: timing.busy for rank, timing in sorted(self._timings.items())}

    def _ratios(self) -> dict[int, float]:
        if len(self._timings) < 2:  # noqa: PLR2004  there is no other rank to compare with
            return {}
        typical = median_low(timing.busy for timing in self._timings.values())
        step = median_low(timing.step for timing in self._timings.values())
        excess = max(timing.busy for timing in self._timings.values()) - typical
        baseline = max(step - excess, typical)  # what a step would take without the slowest rank
        if baseline <= 0:
            return {}
        return {rank: 1 + (timing.busy - typical) / baseline for rank, timing in self._timings.items()}
