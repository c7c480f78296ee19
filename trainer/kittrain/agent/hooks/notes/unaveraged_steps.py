"""Optimizer steps whose gradients the ranks have not averaged, as ``no_sync()`` was left one backward pass too soon.

A step is the sum of several passes, one of which exchanges the gradients: it has to be the last. A rank says so at its
end. What it costs: two additions for each pass.
"""

from __future__ import annotations

import sys
from typing import Final

from kittrain.outcome.rank_output import UNAVERAGED

FEWEST: Final = 3  # passes of such a step: of two, one may be of a model that each rank has for itself
STEPS: Final = 3  # that were like that, before it is told


class UnaveragedSteps:
    """The backward passes between the steps of all optimizers of a process."""

    def __init__(self) -> None:
        self._passes = self._exchanged = self._most = 0  # of the step that comes; the number of the pass that did
        self._averaged = self._off = 0  # steps of several passes

    def passed(self, *, exchanged: bool) -> None:
        """A backward pass has ended, with or without a collective in it."""
        self._passes += 1
        if exchanged:
            self._exchanged = self._passes

    def called(self) -> None:
        """An optimizer has taken a step."""
        if self._passes >= FEWEST and self._exchanged:
            if self._exchanged == self._passes:
                self._averaged += 1
            else:
                self._off += 1
                self._most = self._passes
        self._passes = self._exchanged = 0

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._off >= STEPS and not self._averaged:
            steps = f"{self._off} steps of {self._most} backward passes"
            sys.stderr.write(f"note: {UNAVERAGED}{steps}, of which the last exchanged nothing\n")
