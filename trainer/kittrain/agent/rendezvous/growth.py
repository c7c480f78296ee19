"""Decides when an elastic job's round may end so that nodes that wait can join it: the rules of ``policy.grow``. Pure.

Each growth costs all ranks a pause: they take a snapshot and start again. So a job grows once for all nodes that come
within ``policy.growEvery``, and a node that comes and goes does not stop the others each time. Until then nodes that
wait stand by, and take the places of those that are lost at once.
"""

from __future__ import annotations

import math


class Growth:
    """When a round of one job may end to become larger.

    Args:
        every: least seconds from one growth to the next; infinite: never.
    """

    def __init__(self, every: float = 0.0) -> None:
        self._every = every
        self._not_before = math.inf if math.isinf(every) else -math.inf

    def held(self, now: float) -> bool:
        """Whether no round may end now to become larger."""
        return now < self._not_before

    def grown(self, now: float) -> None:
        """A round has ended to become larger."""
        self._not_before = now + self._every
