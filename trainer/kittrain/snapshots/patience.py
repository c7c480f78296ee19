"""Waiting for what may take any time, such as a disk: no collective may, since it fails after a few minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

from kittrain.world.distributed import World

PAUSES: Final = (0.001, 0.2)  # seconds between two questions: at first, and at most


def wait(world: World, done: Callable[[], bool]) -> None:
    """Wait until something is done on all ranks. Collective.

    Whoever does it tells the heart how far it is, so that the job counts as hung if nobody does anything any more.

    Args:
        world: all ranks.
        done: whether it is done here.
    """
    pause, longest = PAUSES
    while world.sum(torch.tensor(0.0 if done() else 1.0, device=world.device)).item():
        time.sleep(pause)
        pause = min(2 * pause, longest)
