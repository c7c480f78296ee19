"""When a snapshot is due: by steps and metrics, on which all ranks agree by themselves, and by rank 0's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kittrain.env import RankEnv


class Cadence:
    """Every so many steps or seconds, whichever comes first.

    Args:
        env: of this rank; says how many seconds.
        every: steps.
    """

    def __init__(self, env: RankEnv, *, every: int) -> None:
        self._every = every
        self._seconds = env.snapshot_seconds if env.rank == 0 else None
        self._metric = env.snapshot_keep_best.partition(":")[2]
        self.begin(0)

    def begin(self, step: int) -> None:
        """A snapshot is taken behind a step, or one was gone on from."""
        self._step = step
        self._since = time.monotonic()

    @property
    def overdue(self) -> bool:
        """Whether it is time by this rank's clock."""
        return self._seconds is not None and time.monotonic() >= self._since + self._seconds

    def reached(self, step: int, *, due: bool) -> bool:
        """Whether a snapshot is due behind a step: a multiple of the steps lies between the last one and here.

        Args:
            step: from 1 on.
            due: whether rank 0 told all ranks that it is time.
        """
        return due or step // self._every > self._step // self._every

    def measured(self, metrics: Mapping[str, float]) -> bool:
        """Whether a state has the metric that the best snapshot is kept by."""
        return self._metric in metrics
