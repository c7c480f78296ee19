"""A network with everything that depends on the distribution of samples: BatchNorm, dropout, a short last batch.

curve.py LOSSES [--virtual-ranks N]: the loss of each step goes to a file, in all its bits.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, Step, Training, join


def main(losses: str, virtual: str, rest: str) -> None:
    with join(seed=3) as world:
        model = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
        generator = torch.Generator().manual_seed(0)
        samples = TensorDataset(torch.rand(108, 5, generator=generator), torch.rand(108, 1, generator=generator))

        def record(step: Step) -> None:
            if world.is_main:
                with Path(losses).open("a") as lines:
                    print(step.number, step.generation, step.loss.hex(), file=lines)

        Training(
            world,
            model,
            torch.optim.AdamW(model.parameters(), lr=0.01),
            loss_of(float(rest)),
            Data(samples, batch=32),
            epochs=4,
            virtual_ranks=int(virtual),
            on_step=record,
        ).fit()


def loss_of(seconds: float):
    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        time.sleep(seconds)
        inputs, targets = batch
        return functional.mse_loss(model(inputs), targets)

    return loss


if __name__ == "__main__":
    os.environ.setdefault("KIT_SNAPSHOTS_EVERY_STEPS", "3")
    main(*sys.argv[1:])
