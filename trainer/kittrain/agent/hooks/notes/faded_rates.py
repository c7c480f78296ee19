"""Learning rates that are next to nothing for most of a training, as of a schedule of epochs that each step advances.

A rank says so at its end. Of eight steps one is looked at.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from kittrain.outcome.rank_output import FADED

EVERY: Final = 8  # steps
LEAST: Final = 10  # looks, before which a warm-up may be all that was seen
FADED_TO: Final = 1e-6  # of the highest rate, and
NOTHING: Final = 1e-8  # at most: a search for a rate may begin or end far from those that train
MOST: Final = 0.5  # of the steps, above which it is told


class FadedRates:
    """Watches all optimizers of a process: the highest rate of those that step counts."""

    def __init__(self) -> None:
        self._steps = self._looks = self._faded = 0
        self._highest = 0.0

    def called(self, optimizer: Any) -> None:
        """An optimizer has taken a step."""
        self._steps += 1
        if self._steps % EVERY:
            return
        rates = [group.get("lr") for group in optimizer.param_groups]
        if not all(isinstance(rate, int | float) for rate in rates):  # a tensor: reading it may wait for a GPU
            return
        rate = max(rates, default=0.0)
        self._highest = max(self._highest, rate)
        self._looks += 1
        self._faded += rate < min(self._highest * FADED_TO, NOTHING)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._looks >= LEAST and self._faded > self._looks * MOST:
            share = round(100 * self._faded / self._looks)
            sys.stderr.write(f"note: {FADED}less than a millionth of its highest at {share} % of {self._steps} steps\n")
