"""Timeouts of collectives."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

JOIN_TIMEOUT: Final = timedelta(minutes=15)  # imports and a first CUDA context differ by minutes between nodes
STEP_TIMEOUT: Final = timedelta(minutes=5)  # a step, an evaluation's share, or rank 0's publishing of a snapshot
LONGEST_TIMEOUT: Final = timedelta(days=1)  # where hang detection is off


def step_timeout(hang_timeout: float | None) -> timedelta:
    """The timeout of a collective, at least the job's hang timeout in seconds (None: the job does not set one)."""
    requested = min(hang_timeout or 0.0, LONGEST_TIMEOUT.total_seconds())
    return max(STEP_TIMEOUT, timedelta(seconds=requested))
