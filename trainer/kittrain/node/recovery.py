"""How long it took from one round's end to the first step of the next, part by part, as one node saw it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from kittrain.system.heartbeat import Phase

# The parts that the ranks know of, in their order: each ends when all ranks of this node have come to a phase.
RANK_PARTS: Final[tuple[tuple[str, Phase], ...]] = (
    ("start", Phase.JOINING),  # processes, and what they import
    ("join", Phase.PREPARING),  # the process group
    ("restore", Phase.DATA),  # the script's own preparation, and the snapshot
    ("first_step", Phase.AGREEING),
)


class Recovery:
    """One after the other: begun where a round is over, complete with the next one's first step.

    Attributes:
        complete: the last whole one: its ``cause``, and the seconds of its parts.
    """

    def __init__(self) -> None:
        self.complete: dict[str, Any] | None = None
        self._parts: dict[str, Any] | None = None
        self._last = 0.0

    def begin(self, cause: str, *, noticed: float | None = None) -> None:
        """A round is over; ``noticed`` is when that was known, in ``time.monotonic()``, None for now."""
        if self._parts is None or "form" in self._parts:
            self._parts = {"cause": cause}
            self._last = time.monotonic() if noticed is None else noticed

    def mark(self, part: str, at: float | None = None) -> None:
        """A part is done, now or at a moment of ``time.monotonic()``; the first time counts."""
        if self._parts is not None and part not in self._parts:
            at = time.monotonic() if at is None else at
            self._parts[part] = round(at - self._last, 3)
            self._last = at

    def look(self, first: Callable[[Phase], float]) -> None:
        """Complete it once the ranks have taken a step; ``first`` says when they came to a phase, 0 for not yet."""
        if self._parts is None or not first(Phase.AGREEING):
            return
        for part, phase in RANK_PARTS:
            self.mark(part, first(phase))
        self.complete, self._parts = self._parts, None
