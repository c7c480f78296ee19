"""Trains, and hangs once on rank 1, at one step or before the first, in the way that HANG names.

Records steps as toy does. With HANG_AGAIN it hangs there each time.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from kittrain import Data, Step, Training, join
from kittrain.workloads.toy import Record

EPOCHS, SAMPLES, BATCH, SEED = 2, 128, 16, 3
AT = 11  # finished steps before the hang

folder = Path(os.environ["KIT_SNAPSHOT_DIR"])
fault = os.environ["HANG"]
first = not (folder / "hung").exists() or "HANG_AGAIN" in os.environ
steps: list[Step] = []  # of this process


def due(kind: str) -> bool:
    """Whether to hang now; only once per run."""
    if not first or fault != kind or (taken() != AT and kind != "start"):
        return False
    (folder / "hung").touch()
    return True


def taken() -> int:
    """The number of finished steps."""
    return steps[-1].number if steps else 0


class Numbers(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        if world.rank == 1 and due("data"):
            time.sleep(600)
        numbers = torch.rand(4, generator=torch.Generator().manual_seed(index))
        return numbers, numbers.sum(0, keepdim=True), index


def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    time.sleep(float(os.environ.get("STEP_SECONDS", "0.02")))
    if due("skip") and world.rank != 1:
        dist.all_reduce(torch.zeros(1), group=extra)
    if world.rank == 1 and due("compute"):
        compute(float(os.environ["COMPUTE_SECONDS"]))
    inputs, targets, ids = batch
    record.add_batch(ids)
    return functional.mse_loss(model(inputs), targets)


def compute(seconds: float) -> None:
    """Compute without blocking calls, as a compiler does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def on_step(step: Step) -> None:
    steps.append(step)
    record.write(step)
    if world.rank == 1 and due("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)


def on_epoch(_epoch: int) -> dict[str, float]:
    time.sleep(float(os.environ.get("EVALUATION_SECONDS", "0")))
    return {}


with join(seed=SEED) as world:
    record = Record(Path(os.environ["RECORDS"]), world)
    extra: Any = dist.new_group()
    if world.rank == 1 and due("start"):
        os.kill(os.getpid(), signal.SIGSTOP)
    model = nn.Linear(4, 1)
    Training(
        world,
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss,
        Data(Numbers(), batch=BATCH, seed=SEED),
        epochs=EPOCHS,
        snapshot_every=5,
        on_step=on_step,
        on_epoch=on_epoch,
    ).fit()
