"""When a snapshot is due: every N steps or seconds, or when a metric for the best snapshot is known."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from kittrain.job.env import RankEnv


class SnapshotSchedule:
    """Every N steps or seconds, whichever comes first. All ranks agree on the steps; the time is that of rank 0.

    Args:
        env: of this rank; has the seconds.
        every: steps.
    """

    def __init__(self, env: RankEnv, *, every: int) -> None:
        self._every = every
        self._seconds = env.job.snapshots.every_seconds if env.rank == 0 else None
        self._metric = env.job.snapshots.keep_best.partition(":")[2]
        self.restart(0)

    def restart(self, step: int) -> None:
        """Count from this step, after a snapshot or a resume."""
        self._step = step
        self._since = time.monotonic()

    @property
    def time_due(self) -> bool:
        """Whether the seconds have passed; on rank 0 only."""
        return self._seconds is not None and time.monotonic() >= self._since + self._seconds

    def is_due(self, step: int, *, time_due: bool) -> bool:
        """Whether a snapshot is due after a step, as a multiple of the steps was reached or the seconds have passed.

        Args:
            step: from 1 on.
            time_due: rank 0's ``time_due``, as all ranks received it.
        """
        return time_due or step // self._every > self._step // self._every

    def has_best_metric(self, metrics: Mapping[str, float]) -> bool:
        """Whether the metrics include the one that selects the best snapshot (``snapshots.keepBest``), a finite one."""
        return math.isfinite(metrics.get(self._metric, math.nan))
