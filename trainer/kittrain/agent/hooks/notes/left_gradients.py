"""Gradients that a script adds up over several backward passes, and leaves at its end: no optimizer step has used them.

So it is where an epoch's batches are no multiple of the passes of a step. A rank says so at its end. What it costs: an
addition for each pass.
"""

from __future__ import annotations

import sys
from typing import Final

from kittrain.outcome.rank_output import LEFT_GRADIENTS

FEWEST: Final = 2  # backward passes of each step, of a loop that accumulates


class LeftGradients:
    """Counts the backward passes between the steps of all optimizers of a process."""

    def __init__(self) -> None:
        self._passes = self._most = 0
        self._fewest = sys.maxsize

    def passed(self) -> None:
        """A backward pass begins that is no evaluation's."""
        self._passes += 1

    def called(self) -> None:
        """An optimizer has taken a step; of several in a row, the first one has used the gradients."""
        if self._passes:
            self._fewest, self._most = min(self._fewest, self._passes), max(self._most, self._passes)
            self._passes = 0

    def discarded(self) -> None:
        """``zero_grad`` has discarded the gradients, as at the start of an epoch: the next step begins anew."""
        self._passes = 0

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if FEWEST <= self._fewest <= self._most and 0 < self._passes < self._most:
            passes = f"{self._fewest}" if self._fewest == self._most else f"{self._fewest} to {self._most}"
            last = "backward pass" if self._passes == 1 else f"{self._passes} backward passes"
            sys.stderr.write(f"note: {LEFT_GRADIENTS}{last}; others have used {passes} each\n")
