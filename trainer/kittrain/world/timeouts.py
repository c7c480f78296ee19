"""How long ranks wait for each other in a collective."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

JOIN_TIMEOUT: Final = timedelta(minutes=15)  # imports and a first CUDA context differ by minutes between nodes
STEP_TIMEOUT: Final = timedelta(minutes=5)  # a step, an evaluation's share, or rank 0's publishing of a snapshot
LONGEST_TIMEOUT: Final = timedelta(days=1)  # where hangs are not to be judged


def step_timeout(hang_timeout: float | None) -> timedelta:
    """How long a collective may take: at least as many seconds as the job gives a step; None if it does not say."""
    asked = min(hang_timeout or 0.0, LONGEST_TIMEOUT.total_seconds())
    return max(STEP_TIMEOUT, timedelta(seconds=asked))
