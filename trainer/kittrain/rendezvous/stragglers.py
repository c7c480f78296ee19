"""Which ranks are slower than the others, by the time that all of them are busy: the rules, without clocks.

All ranks of a step end it together, so how long it takes tells nothing about any of them; how long each one was busy
before it waited does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Final

SLOW: Final = 1.3  # times the step that most ranks could take
LASTING: Final = 3  # looks in a row


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of a rank's steps: all of it, and what the rank was busy for."""

    step: float
    busy: float


class Tempo:
    """The pace of the ranks of one round after the other. ``now`` is in seconds of any steady clock."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[float, int, float]] = {}
        self._paces: dict[int, Pace] = {}
        self._late: Counter[int] = Counter()

    def begin(self) -> None:
        """A round was formed: its ranks are new."""
        self._marks.clear()
        self._paces.clear()
        self._late.clear()

    def hear(self, told: Mapping[int, tuple[int, float]], now: float) -> None:
        """A node's ranks, each with its finished steps and all the seconds that it has been busy in them."""
        for rank, (step, busy) in told.items():
            then, before, was = self._marks.get(rank, (now, step, busy))
            if step > before:
                steps = step - before
                self._paces[rank] = Pace(step=(now - then) / steps, busy=(busy - was) / steps)
            self._marks[rank] = (now, step, busy)

    def slow(self) -> dict[int, float]:
        """The ranks that stay slow: how many times the others' step theirs takes. To be asked at equal intervals."""
        ratios = self._ratios()
        self._late = Counter({rank: self._late[rank] + 1 for rank, ratio in ratios.items() if ratio >= SLOW})
        return {rank: round(ratios[rank], 2) for rank, looks in sorted(self._late.items()) if looks >= LASTING}

    def busy(self) -> dict[int, float]:
        """Seconds of a step that each rank is busy for."""
        return {rank: pace.busy for rank, pace in sorted(self._paces.items())}

    def _ratios(self) -> dict[int, float]:
        if len(self._paces) < 2:  # noqa: PLR2004  nobody to compare it with
            return {}
        usual = median_low(pace.busy for pace in self._paces.values())
        step = median_low(pace.step for pace in self._paces.values())
        most = max(pace.busy for pace in self._paces.values()) - usual
        alone = max(step - most, usual)  # what a step would take without the slowest rank
        return {rank: 1 + (pace.busy - usual) / alone for rank, pace in self._paces.items()} if alone > 0 else {}
