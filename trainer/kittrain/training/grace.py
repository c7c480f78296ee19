"""Whether a node that is told to leave has time to: a step and a snapshot have to fit in the grace period."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from kittrain.world.distributed import World

WINDOW: Final = 1000  # steps, or snapshots, that count


class Grace:
    """Compares what rank 0 measures with what the job has, and warns once.

    Args:
        world: whose environment says how long the grace period is.
    """

    def __init__(self, world: World) -> None:
        self._say = world.say
        self._seconds = world.env.grace_seconds
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._snapshots: deque[float] = deque(maxlen=WINDOW)
        self._last: float | None = None
        self._warned = self._seconds is None

    def step(self, now: float) -> None:
        """A step is done, by a steady clock in seconds."""
        if self._last is not None:
            self._steps.append(now - self._last)
        self._last = now

    def snapshot(self, seconds: float) -> None:
        """A snapshot took so long."""
        self._snapshots.append(seconds)
        if self._warned or not self._steps:
            return
        step, snapshot = _p99(self._steps), _p99(self._snapshots)
        if self._seconds is not None and step + snapshot > self._seconds:
            self._warned = True
            self._say(
                f"warning: the grace period of {self._seconds} s is too short for a step ({step:.1f} s) and a "
                f"snapshot ({snapshot:.1f} s): a node that is told to leave may be killed before its last snapshot; "
                "set policy.gracePeriod"
            )


def _p99(samples: Sequence[float]) -> float:
    """The 99th percentile; of few samples the largest."""
    return sorted(samples)[int(0.99 * len(samples))]
