"""Trains a small model in several processes, replicated or sharded by FSDP2, over the same snapshots."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from kittrain import Data, Step, Training, World, evaluate, join
from kittrain.rank.snapshots.write.memory_copies import COPIES
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork

Kind = Literal["replicated", "sharded"]
STEPS = 4  # per epoch


def has_fsdp_on_cpus() -> bool:
    """Whether FSDP2 works on CPUs: that of torch 2.6 fails in the first forward pass."""
    return hasattr(torch.cpu.Stream, "record_event")


def skip_without_fsdp_on_cpus() -> None:
    """Skip the test if this torch's FSDP2 needs GPUs."""
    if not has_fsdp_on_cpus():
        pytest.skip(f"FSDP2 of torch {torch.__version__} needs GPUs")


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    outputs: Tensor = model(batch[0])
    return outputs.square().mean()


def squared(model: nn.Module, batch: list[Tensor]) -> Tensor:
    outputs: Tensor = model(batch[0])
    return outputs.square().mean(dim=1)


def model_of(world: World, kind: Kind) -> nn.Module:
    """Its layers do not divide evenly among 2 or 3 ranks; one of 3 ranks gets nothing of the last layer."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    if kind == "sharded":
        fully_shard(model, mesh=init_device_mesh(world.device.type, (world.size,)))  # in place
    return model


def train(kind: Kind, epochs: int, dies_at: int | None = None) -> None:
    """Resume and train to the end of an epoch; ``dies_at`` kills the last rank after that step."""

    def on_step(step: Step) -> None:
        if dies_at and (folder := world.env.memory_dir):
            wait_for_copies(folder / str(world.env.local_rank))
        if step.number == dies_at and world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with join(seed=1) as world:
        model = model_of(world, kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
        samples = torch.rand(STEPS * 6, 5, generator=torch.Generator().manual_seed(0))
        dataset = TensorDataset(samples)

        def on_epoch(_: int) -> dict[str, float]:
            with torch.no_grad():
                model(samples)  # which leaves parameters whole until the next backward pass
            return {}

        evaluate(world, model, dataset, squared)
        Training(
            world,
            model,
            optimizer,
            loss,
            Data(dataset, batch=6),
            epochs=epochs,
            scheduler=scheduler,
            on_step=on_step,
            on_epoch=on_epoch,
        ).fit()


def wait_for_copies(folder: Path) -> None:
    """Give a rank's copies time to complete, at each step: on a slow machine none would be, by the last one."""
    deadline = time.monotonic() + 1
    while len(list(folder.glob("step-*"))) < COPIES and time.monotonic() < deadline:
        time.sleep(0.002)


def run(
    folders: Sequence[Path],
    kind: Kind,
    epochs: int,
    *,
    name: str = "run",
    env: Mapping[str, str] = MappingProxyType({}),
    dies_at: int | None = None,
) -> list[int | None]:
    """Run one rank per snapshot folder; returns the exit codes. Each rank's output is in ``log-RANK``."""
    if kind == "sharded":
        skip_without_fsdp_on_cpus()
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(len(folders))}
    shared |= {"KIT_BACKEND": "gloo", "PET_RDZV_ID": name, "KIT_RESUME": "1", "KIT_SNAPSHOTS_EVERY_STEPS": "2", **env}
    processes = []
    for rank, folder in enumerate(folders):
        local = 0 if "KIT_SNAPSHOTS_STORAGE" in env else rank  # of a node with a folder of its own
        own = {"RANK": str(rank), "LOCAL_RANK": str(local), "KIT_SNAPSHOT_DIR": str(folder)}
        log = folders[0].with_name(f"log-{rank}")
        processes.append(fork(run_rank, shared | own, kind, epochs, dies_at, log))
    return [finish(process) for process in processes]


def run_rank(env: dict[str, str], kind: Kind, epochs: int, dies_at: int | None, log: Path) -> None:
    os.environ.update(env)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    train(kind, epochs, dies_at)
