"""What each rank of the benchmark of virtual ranks does: a few steps each way, in turn, round after round."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from bench.loop_ranks import LEARNING_RATE, convnet, loss
from bench.virtual import ROUNDS, STEPS, WAYS
from kittrain import Data, Training, World, join

BATCH = 256
WARM_UP = 2  # rounds


def main(out: Path) -> None:
    """Train; rank 0 writes the seconds of each round."""
    with join() as world:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(BATCH * STEPS, 1, 28, 28, generator=generator)
        dataset = TensorDataset(images, torch.randint(0, 10, (len(images),), generator=generator))
        rounds = [{way: seconds(world, dataset, way) for way in WAYS} for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        if world.is_main:
            out.write_text(json.dumps({way: [one[way] for one in rounds] for way in WAYS}), encoding="utf-8")


def seconds(world: World, dataset: TensorDataset, way: int) -> float:
    """One epoch, from the first step to the end."""
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    training = Training(world, model, optimizer, loss, Data(dataset, batch=BATCH), epochs=1, virtual_ranks=way)
    world.barrier()
    began = time.perf_counter()
    training.fit()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(Path(sys.argv[1]))
