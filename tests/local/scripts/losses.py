"""Trains with losses of known size: slow data, a slow rank, evaluations. Each rank records how long they really took.

``losses.py RECORDS STEPS EVERY``: a line ``<what> <begin> <seconds>`` each, in a file for each start of a rank, and one
for each step that it begins. Snapshots and evaluations are EVERY so many steps.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from kittrain import Data, Training, join

SAMPLES, BATCH = 640, 8
records, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def main() -> None:
    begun = time.time_ns()
    if any(records.glob(f"rank-{os.environ['RANK']}-*")):  # started again: a recovery that is long beside what a busy
        time.sleep(3.0)  # machine adds
    with join(seed=1) as world, (records / f"rank-{world.rank}-{begun}").open("a") as file:

        def lose(what: str, seconds: float) -> None:
            begin, clock = time.monotonic(), time.time()
            time.sleep(seconds)
            file.write(f"{what} {clock} {time.monotonic() - begin}\n")
            file.flush()

        class Slow(Dataset[Tensor]):
            def __len__(self) -> int:
                return SAMPLES

            def __getitem__(self, index: int) -> Tensor:
                lose("data", 0.02)
                return torch.full((4,), float(index))

        def loss(model: nn.Module, batch: Tensor) -> Tensor:
            lose("step", 0.0)
            if world.rank == 1:
                lose("straggler", 0.1)
            mean: Tensor = model(batch).mean()
            return mean

        def evaluate(_: int) -> dict[str, float]:
            lose("evaluation", 0.4)
            return {}

        model = nn.Linear(4, 1)
        Training(
            world,
            model,
            torch.optim.SGD(model.parameters(), lr=0.0),
            loss,
            Data(Slow(), batch=BATCH),
            epochs=steps * BATCH // SAMPLES,
            snapshot_every=every,
            evaluate_every=every,
            on_evaluate=evaluate,
        ).fit()


main()
