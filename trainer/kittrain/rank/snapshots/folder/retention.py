"""Which snapshots of a run are kept: the last few, milestones, the best by a metric, and the last finite one. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from kittrain.job.env import RankEnv


class Retained(Protocol):
    """What decides whether a snapshot is kept."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def step(self) -> int: ...  # noqa: D102
    @property
    def metrics(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def not_finite(self) -> str: ...  # noqa: D102


K = TypeVar("K", bound=Retained)


class Retention:
    """The retention policy that the environment sets.

    Args:
        env: its environment.
        least: keep only what a run may resume from, as in memory; the mirror keeps the others.
    """

    def __init__(self, env: RankEnv, *, least: bool = False) -> None:
        given = env.job.snapshots
        self._last, self._every = (1, None) if least else (given.keep, given.keep_every)
        self._better, _, self._metric = ("" if least else given.keep_best).partition(":")

    def expired(self, snapshots: Sequence[K]) -> list[K]:
        """The snapshots that may be deleted, given a run's snapshots in order."""
        finite = [one for one in snapshots if not one.not_finite]
        kept = (*snapshots[-self._last :], *self._milestones(snapshots), *self._best(finite), *finite[-1:])
        names = {one.name for one in kept}
        return [one for one in snapshots if one.name not in names]

    def _milestones(self, snapshots: Sequence[K]) -> list[K]:
        """The first snapshot at or after each multiple of the interval. It stays the first, as it is never deleted."""
        if self._every is None:
            return []
        reached = [0, *(one.step // self._every for one in snapshots)]
        return [one for one, before, now in zip(snapshots, reached, reached[1:], strict=False) if now > before]

    def _best(self, snapshots: Sequence[K]) -> list[K]:
        """The snapshot with the best metric, which has to be finite; the first of equal ones."""
        measured = [one for one in snapshots if math.isfinite(one.metrics.get(self._metric, math.nan))]
        choose = max if self._better == "max" else min
        return [choose(measured, key=lambda one: one.metrics[self._metric])] if measured else []
