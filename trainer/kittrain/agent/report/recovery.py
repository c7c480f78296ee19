"""Measures each part of a recovery, from the end of a round to the first step of the next, on this node."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from kitjob.report import RecoveryTimings
from kittrain.system.heartbeat import Phase

# The ranks' parts, in order: each ends when all ranks of this node have reached a phase.
RANK_PARTS: Final[tuple[tuple[str, Phase], ...]] = (
    ("start", Phase.JOINING),  # processes and imports
    ("join", Phase.PREPARING),  # the process group
    ("restore", Phase.DATA),  # the script's preparation and the snapshot
    ("first_step", Phase.SYNCING),
)
SCRIPT_PARTS: Final[tuple[tuple[str, Phase], ...]] = (  # in a script's own loop; what it restores is unknown
    ("start", Phase.JOINING),
    ("join", Phase.PREPARING),
    ("first_step", Phase.SCRIPT),
)


class RecoveryClock:
    """The current recovery, and the last complete one.

    Attributes:
        complete: the last complete one.
    """

    def __init__(self) -> None:
        self.complete: RecoveryTimings | None = None
        self._parts: dict[str, Any] | None = None
        self._last = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether the ranks have not taken a step since a round ended."""
        return self._parts is not None

    def begin(self, cause: str, *, noticed: float | None = None) -> None:
        """A round has ended; ``noticed`` is when this was detected, in ``time.monotonic()``; None for now."""
        if self._parts is None or "form" in self._parts:
            self._parts = {"cause": cause}
            self._last = time.monotonic() if noticed is None else noticed

    def explain(self, cause: str) -> None:
        """Replace the cause of the current recovery, once a better one is known."""
        if self._parts is not None:
            self._parts["cause"] = cause

    def mark(self, part: str, at: float | None = None) -> None:
        """A part has ended, at ``at`` in ``time.monotonic()`` or now. Only the first call per part counts."""
        if self._parts is not None and part not in self._parts:
            at = time.monotonic() if at is None else at
            self._parts[part] = round(at - self._last, 3)
            self._last = at

    def update(self, reached: Callable[[Phase], float]) -> None:
        """Complete it once the ranks have taken a step; ``reached`` gives when they reached a phase, 0 for not yet."""
        if self._parts is None:
            return
        for parts in (RANK_PARTS, SCRIPT_PARTS):
            _, last = parts[-1]
            if not reached(last):
                continue
            for part, phase in parts:
                if at := reached(phase):  # ranks that form no group never join
                    self.mark(part, at)
            self.complete, self._parts = RecoveryTimings(**self._parts), None
            return
