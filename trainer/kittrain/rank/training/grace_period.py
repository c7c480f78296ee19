"""Warns if the grace period is too short: a drain needs time for one step and one snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from kittrain.rank.world.distributed import World

WINDOW: Final = 1000  # latest steps, or snapshots, that are considered


class GracePeriodCheck:
    """Compares the times that rank 0 measures with the job's grace period, and warns once.

    Args:
        world: its environment has the grace period.
    """

    def __init__(self, world: World) -> None:
        self._print = world.print
        self._seconds = world.env.grace_seconds
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._snapshots: deque[float] = deque(maxlen=WINDOW)
        self._last: float | None = None
        self._warned = self._seconds is None

    def step(self, now: float) -> None:
        """A step has ended; ``now`` is a monotonic time in seconds."""
        if self._last is not None:
            self._steps.append(now - self._last)
        self._last = now

    def snapshot(self, seconds: float) -> None:
        """A snapshot took this many seconds."""
        self._snapshots.append(seconds)
        if self._warned or not self._steps:
            return
        step, snapshot = _p99(self._steps), _p99(self._snapshots)
        if self._seconds is not None and step + snapshot > self._seconds:
            self._warned = True
            self._print(
                f"warning: the grace period of {self._seconds} s is too short for a step ({step:.1f} s) and a "
                f"snapshot ({snapshot:.1f} s): a node that is drained may be killed before its last snapshot; "
                "set policy.gracePeriod"
            )


def _p99(samples: Sequence[float]) -> float:
    """The 99th percentile; of few samples the maximum."""
    return sorted(samples)[int(0.99 * len(samples))]
