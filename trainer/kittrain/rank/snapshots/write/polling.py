"""Waiting on all ranks for work of unbounded duration, such as disk writes.

A single collective cannot wait for it: collectives time out after a few minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

from kittrain.rank.world.distributed import World

INTERVALS: Final = (0.001, 0.2)  # seconds between two polls: first and longest


def wait_for_all(world: World, done: Callable[[], bool]) -> None:
    """Wait until every rank is done. Collective.

    The work itself writes heartbeats, so that the job still counts as hung if it makes no progress.

    Args:
        world: all ranks.
        done: whether this rank is done.
    """
    interval, longest = INTERVALS
    while world.sum(torch.tensor(0.0 if done() else 1.0, device=world.device)).item():
        time.sleep(interval)
        interval = min(2 * interval, longest)
