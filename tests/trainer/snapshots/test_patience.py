"""However long it takes one rank, the others wait."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kittrain import World
from kittrain.env import RankEnv
from kittrain.snapshots.patience import wait


@dataclass(frozen=True, kw_only=True)
class OfTwo(World):
    """The other rank answers what it is told to, one time after the other."""

    other: list[float]

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor + self.other.pop(0)


def test_it_ends_when_all_ranks_are_done() -> None:
    world = OfTwo(env=RankEnv(world_size=2), device=torch.device("cpu"), other=[1, 1, 0, 0, 0])
    mine = iter([True, True, False, True])
    wait(world, lambda: next(mine))
    assert world.other == [0]
