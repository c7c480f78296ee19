"""Runs on each rank of the mirror's benchmark: ``fit()``, with the moment of each step written to a file by rank 0.

python -m bench.snapshots.mirror_ranks FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from bench.snapshots.snapshot import LAYERS, WIDTH
from kittrain import Data, Step, Training, World, join

BLOCK: Final = 60  # steps from one snapshot to the next
BATCH: Final = 64  # of both ranks


def main(times: Path) -> None:
    """Train until the benchmark ends."""
    with join() as world, times.open("a", encoding="utf-8", buffering=1) as file:

        def on_step(_step: Step) -> None:
            if world.rank == 0:
                file.write(f"{time.monotonic()}\n")

        train(world, on_step, batch=BATCH)


def train(world: World, on_step: Callable[[Step], None], *, batch: int) -> None:
    """Train a model whose state has ``SIZE`` bytes, for good."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    Training(
        world,
        model,
        torch.optim.Adam(model.parameters()),
        lambda model, batch: mse_loss(model(batch[0]), batch[1]),
        Data(TensorDataset(torch.rand(4096, WIDTH), torch.rand(4096, WIDTH)), batch=batch),
        epochs=1 << 20,
        on_step=on_step,
    ).fit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
