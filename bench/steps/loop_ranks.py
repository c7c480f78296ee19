"""Runs on each rank of the loop benchmark: the trainer's loop and a bare DDP loop, alternating in the same process.

After every BLOCK steps, the callback of the trainer's loop takes as many steps of a bare loop, with a separate model,
optimizer and data, but with the same weights throughout. Both are timed by the wall clock of rank 0. On a GPU, which
works asynchronously, a block is timed until the GPU has finished it, and each of its steps counts as the block's mean.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from kittrain import Data, Step, Training, World, join
from kittrain.job.env import rank_env
from kittrain.system import heartbeat

BATCH_PER_RANK = int(os.environ.get("BENCH_BATCH", "128"))  # 128: about 80 ms per step on one CPU core
BLOCK = 6  # steps of one loop before the other continues; the first one has cold caches, and is not counted
PAIRS = 55
LEARNING_RATE = 0.0  # weights that differ make steps that differ by some percent, and more so as training continues


def convnet() -> nn.Module:
    """Two convolutions of 16 and 32 channels with batch normalization, for images of 28x28 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(7 * 7 * 32, 10)),
    )


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The loss of both loops."""
    images, labels = batch
    return cross_entropy(model(images), labels)


def bare_steps(model: nn.Module, dataset: TensorDataset, device: torch.device) -> Iterator[None]:
    """A bare loop, as in tutorials: yields after each step."""
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH_PER_RANK, sampler=sampler, pin_memory=device.type == "cuda")
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            loss(model, (images.to(device, non_blocking=True), labels.to(device, non_blocking=True))).backward()
            optimizer.step()
            yield


class Alternation:
    """The trainer's callback: times its steps, and after each block runs and times the bare loop."""

    def __init__(self, bare: Iterator[None], device: torch.device) -> None:
        self._bare = bare
        self._device = device
        self._block: list[float] = []
        self._since = time.perf_counter()
        self.pairs: list[dict[str, list[float]]] = []

    def __call__(self, _step: Step) -> None:
        """A step of the trainer's loop has ended."""
        self._block.append(time.perf_counter() - self._since)
        if len(self._block) == BLOCK:
            ours = self._synchronized(self._block)
            self.pairs.append({"trainer": ours, "bare": self._synchronized([self._bare_step() for _ in range(BLOCK)])})
            self._block = []
        self._since = time.perf_counter()

    def _bare_step(self) -> float:
        start = time.perf_counter()
        next(self._bare)
        return time.perf_counter() - start

    def _synchronized(self, block: list[float]) -> list[float]:
        """The seconds of a block's steps; on a GPU, wait for it and return their mean for each."""
        if self._device.type != "cuda":
            return block
        start = time.perf_counter()
        torch.cuda.synchronize()
        return [(sum(block) + time.perf_counter() - start) / BLOCK] * BLOCK


def main(out: Path) -> None:
    """Run both loops; rank 0 writes the seconds of every step."""
    file = heartbeat.prepare(out.with_suffix(f".rank-{rank_env().rank}"))
    with join(env=replace(rank_env(), heartbeat_file=file)) as world:  # it writes heartbeats as under an agent
        generator = torch.Generator().manual_seed(0)
        size = 8 * BATCH_PER_RANK * world.size
        images = torch.randn(size, 1, 28, 28, generator=generator)
        dataset = TensorDataset(images, torch.randint(0, 10, (size,), generator=generator))
        model = convnet()
        alternation = Alternation(bare_steps(deepcopy(model), dataset, world.device), world.device)
        train(world, model, dataset, alternation)
        if world.is_main:
            out.write_text(json.dumps(alternation.pairs), encoding="utf-8")


def train(world: World, model: nn.Module, dataset: TensorDataset, alternation: Alternation) -> None:
    """Run the trainer's loop for at least PAIRS blocks."""
    model = model.to(world.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    data = Data(dataset, batch=BATCH_PER_RANK * world.size)
    epochs = -(-PAIRS * BLOCK // data.order.steps_per_epoch) + 1
    Training(world, model, optimizer, loss, data, epochs=epochs, on_step=alternation).fit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
