"""Which snapshots of a run stay: the last few, some for good, and the best one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kittrain.env import RankEnv
from kittrain.snapshots.snapshot import Manifest


class Retention:
    """What the environment asks to keep."""

    def __init__(self, env: RankEnv) -> None:
        self._last = env.snapshot_keep
        self._every = env.snapshot_keep_every
        self._better, _, self._metric = env.snapshot_keep_best.partition(":")

    def dropped(self, snapshots: Sequence[Manifest]) -> list[Manifest]:
        """Those that need not stay, of a run's snapshots in their order."""
        kept = {one.name for one in (*snapshots[-self._last :], *self._milestones(snapshots), *self._best(snapshots))}
        return [one for one in snapshots if one.name not in kept]

    def _milestones(self, snapshots: Sequence[Manifest]) -> list[Manifest]:
        """The first one behind each multiple; it stays the first, as it is never dropped."""
        if self._every is None:
            return []
        reached = [0, *(one.step // self._every for one in snapshots)]
        return [one for one, before, now in zip(snapshots, reached, reached[1:], strict=False) if now > before]

    def _best(self, snapshots: Sequence[Manifest]) -> list[Manifest]:
        """The best by the metric; of equal ones the first."""
        measured = [one for one in snapshots if not math.isnan(one.metrics.get(self._metric, math.nan))]
        choose = max if self._better == "max" else min
        return [choose(measured, key=lambda one: one.metrics[self._metric])] if measured else []
