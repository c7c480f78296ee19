"""What the ranks of a node show, for tests of what is reported of them."""

from __future__ import annotations

import time
from typing import ClassVar

from kittrain.system.heartbeat import Phase, Stored


class SteppedRanks:
    """Ranks that have taken one step."""

    script_progress: ClassVar[dict[str, object]] = {}
    loaded: ClassVar[int] = 0
    script_steps: ClassVar[int] = 0
    finished: ClassVar[int] = 0
    group: ClassVar[int] = 0
    separate: ClassVar[int] = 0
    not_finite: ClassVar[int] = 0
    printed_loss: ClassVar[str] = ""
    loaded_file: ClassVar[None] = None
    saved: ClassVar[None] = None
    read_at: ClassVar[float] = 0.0
    evaluating: ClassVar[bool] = False
    last: ClassVar[tuple[Phase, int, float]] = (Phase.SYNCING, 1, 0.0)
    moved: ClassVar[float] = 0.0
    pids: ClassVar[list[int]] = []
    stored: ClassVar[Stored] = Stored()

    def phases(self) -> dict[Phase, float]:
        return {}

    def reached(self, phase: Phase) -> float:
        return time.monotonic() + phase
