"""Runs on each rank of the survivors' benchmark: ``fit()``, which could outlive its round in every other block only.

python -m bench.steps.survivors_ranks MODEL FILE
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from kittrain import Data, Step, Training, World, join

BLOCK: Final = 40  # steps; the first one is not counted
PAIRS: Final = 65
SHARDS: Final = 2
WIDTH: Final = 64  # small: what is measured is the same for any width, and the noise of a wide model's step hides it
LAYERS: Final = 6
SAMPLES: Final = 16  # of a rank in a step


def model_of(world: World, kind: str) -> nn.Module:
    """Some layers, replicated or sharded with replicas."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)) for _ in range(LAYERS)))
    if kind == "sharded":
        mesh = init_device_mesh("cpu", (world.size // SHARDS, SHARDS), mesh_dim_names=("replicate", "shard"))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


class Turns:
    """``fit()``'s callback: times its steps, and after each block lets the rank outlive its round, or not."""

    def __init__(self) -> None:
        self.survival: Any = None
        self.blocks: list[list[float]] = [[]]
        self._since = time.perf_counter()

    def __call__(self, _step: Step) -> None:
        """A step has ended."""
        now = time.perf_counter()
        self.blocks[-1].append(now - self._since)
        self._since = now
        if len(self.blocks[-1]) == BLOCK:
            can = len(self.blocks) % 2 == 0
            self.survival._possible = can  # noqa: SLF001  whether the loop does what survivors need
            self.survival._set(within=can)  # noqa: SLF001
            self.blocks.append([])


def main(kind: str, file: Path) -> None:
    """Train; rank 0 writes the median step of each block."""
    with join(seed=1) as world:
        model, turns = model_of(world, kind), Turns()
        batch, steps = SAMPLES * world.size, 2 * PAIRS * BLOCK + BLOCK
        data = Data(TensorDataset(torch.rand(steps * batch, WIDTH), torch.rand(steps * batch, WIDTH)), batch=batch)
        training = Training(
            world,
            model,
            torch.optim.AdamW(model.parameters()),
            lambda model, batch: mse_loss(model(batch[0]), batch[1]),
            data,
            epochs=1,
            on_step=turns,
        )
        turns.survival = training._survival  # noqa: SLF001
        training.fit()
        assert not training._survival.note  # noqa: SLF001
        if world.is_main:
            file.write_text(json.dumps([statistics.median(one[1:]) for one in turns.blocks[: 2 * PAIRS]]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
