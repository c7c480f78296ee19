"""Runs on each rank of the benchmark of virtual ranks: a few steps per configuration, in turn, for some rounds."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from bench.steps.loop_ranks import convnet, loss
from bench.steps.virtual import ROUNDS, STEPS, VIRTUAL_RANKS
from kittrain import Data, Training, World, join

BATCH = 256
WARM_UP = 2  # rounds


def main(out: Path) -> None:
    """Train; rank 0 writes the seconds of each round."""
    with join() as world:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(BATCH * STEPS, 1, 28, 28, generator=generator)
        dataset = TensorDataset(images, torch.randint(0, 10, (len(images),), generator=generator))
        rounds = [{n: seconds(world, dataset, n) for n in VIRTUAL_RANKS} for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        if world.is_main:
            out.write_text(json.dumps({n: [one[n] for one in rounds] for n in VIRTUAL_RANKS}), encoding="utf-8")


def seconds(world: World, dataset: TensorDataset, virtual: int) -> float:
    """The duration of one epoch."""
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    training = Training(world, model, optimizer, loss, Data(dataset, batch=BATCH), epochs=1, virtual_ranks=virtual)
    world.barrier()
    start = time.perf_counter()
    training.fit()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(Path(sys.argv[1]))
