"""All ranks wait until the slowest one is done."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.write.polling import wait_for_all


@dataclass(frozen=True, kw_only=True)
class TwoRanks(World):
    """The other rank's values are given in advance, one per call."""

    other: list[float]

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor + self.other.pop(0)


def test_it_ends_when_all_ranks_are_done() -> None:
    world = TwoRanks(env=RankEnv(world_size=2), device=torch.device("cpu"), other=[1, 1, 0, 0, 0])
    mine = iter([True, True, False, True])
    wait_for_all(world, lambda: next(mine))
    assert world.other == [0]
