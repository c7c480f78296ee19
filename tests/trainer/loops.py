"""Training loops of scripts' own, each with a run around it, and how to run one of them on real ranks."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from kittrain import Run, Step, World, join
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork, placed

EPOCHS = 2
SAMPLES = 48
Loop = Callable[["Bench"], nn.Module]  # trains, and returns what is compared


@dataclass
class Bench:
    """What a loop gets.

    Attributes:
        world: all ranks.
        dies_at: the step after which the last rank is killed; None: never.
        losses: of the steps, by number.
    """

    world: World
    dies_at: int | None = None
    losses: dict[int, float] = field(default_factory=dict)

    def run(self, **objects: Any) -> Run:
        """A run with these objects, with a snapshot every second step."""
        return Run(self.world, snapshot_every=2, on_step=self._on_step, **objects)

    def _on_step(self, step: Step) -> None:
        self.losses[step.number] = step.loss
        if step.number == self.dies_at and self.world.rank == self.world.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)


def samples() -> TensorDataset:
    """Inputs (SAMPLES, 5) and targets (SAMPLES, 1)."""
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(*(torch.rand(SAMPLES, width, generator=generator) for width in (5, 1)))


def network() -> nn.Module:
    """With dropout, which draws from the global generator."""
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))


def loader_of(bench: Bench, **options: Any) -> DataLoader[Any]:
    """8 batches of 3 an epoch on each of 2 ranks."""
    sampler: Any = DistributedSampler(samples(), bench.world.size, bench.world.rank, seed=4)
    return DataLoader(samples(), batch_size=3, sampler=sampler, **options)


def settled(run: Run) -> None:
    """Wait until the last snapshot is written, as if a step took longer than writing."""
    while not run._session.message().written:
        time.sleep(0.001)


def ddp(bench: Bench) -> nn.Module:
    """A tutorial's loop."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    loader = loader_of(bench)
    with bench.run(model=model, optimizer=optimizer, scheduler=scheduler) as run:
        for _ in run.epochs(EPOCHS):
            for inputs, targets in run.batches(loader):
                optimizer.zero_grad()
                loss = functional.mse_loss(model(inputs), targets)
                loss.backward()
                optimizer.step()
                scheduler.step()
                settled(run)
                run.step(loss, samples=len(inputs))
    return model


LOOPS: dict[str, Loop] = {"ddp": ddp}


def train(name: str, folder: Path, *, size: int = 2, dies_at: int | None = None) -> list[int | None]:
    """Run a loop on new ranks; returns their exit codes. Each leaves ``result-RANK.pt`` and appends to ``log-RANK``."""
    port = free_port()
    folder.mkdir(exist_ok=True)
    processes = []
    for rank in range(size):
        env = {**placed(rank, size, port), "KIT_BACKEND": "gloo", "KIT_SNAPSHOT_DIR": str(folder / "snapshots")}
        processes.append(fork(_rank, name, env, folder, dies_at))
    return [finish(process) for process in processes]


def _rank(name: str, env: dict[str, str], folder: Path, dies_at: int | None) -> None:
    os.environ.update(env)
    with (folder / f"log-{env['RANK']}").open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    torch.set_num_threads(1)
    with join(seed=1) as world:
        bench = Bench(world=world, dies_at=dies_at)
        model = LOOPS[name](bench)
        torch.save({"losses": bench.losses, "state": plain(model.state_dict())}, folder / f"result-{world.rank}.pt")


def plain(state: dict[str, Any]) -> dict[str, Tensor]:
    """Whole tensors, if they are sharded."""
    return {name: one.full_tensor() if hasattr(one, "full_tensor") else one for name, one in state.items()}
