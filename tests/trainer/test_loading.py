"""A snapshot comes back on any number of ranks, whether they hold the state alike or in parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork
from trainer import Data, Training, World, join
from trainer.loading import load_full
from trainer.snapshot import verify

pytestmark = pytest.mark.slow

STEPS = 4  # an epoch's


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    outputs: Tensor = model(batch[0])
    return outputs.square().mean()


def model_of(world: World, *, sharded: bool) -> nn.Module:
    """Its layers do not divide evenly among 2 or 3 ranks; of the last, one of 3 ranks gets nothing."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    if sharded:
        fully_shard(model, mesh=init_device_mesh(world.device.type, (world.size,)))  # in place
    return model


def train(kind: str, epochs: int) -> None:
    """Go on from what is there to the end of an epoch."""
    with join(seed=1) as world:
        model = model_of(world, sharded=kind == "sharded")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
        samples = torch.rand(STEPS * 6, 5, generator=torch.Generator().manual_seed(0))
        data = Data(TensorDataset(samples), batch=6)
        Training(world, model, optimizer, loss, data, epochs=epochs, scheduler=scheduler).fit()


def ranks(folder: Path, size: int, kind: str, epochs: int, run: str, **env: str) -> None:
    """A world that trains, as processes."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    shared |= {"KIT_SNAPSHOT_DIR": str(folder), "KIT_BACKEND": "gloo", "PET_RDZV_ID": run, "KIT_RESUME": "1"}
    processes = [
        fork(be_rank, shared | env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, kind, epochs) for rank in range(size)
    ]
    assert [finish(process) for process in processes] == [0] * size


def be_rank(env: dict[str, str], *args: Any) -> None:
    os.environ.update(env)
    train(*args)


def newest(folder: Path) -> dict[str, Tensor]:
    path = max(folder.glob("step-*"), key=lambda path: path.name)
    assert verify(path).step == int(path.name[5:13])
    return load_full(path)


@pytest.mark.parametrize(
    "worlds",
    [
        [(2, "sharded"), (3, "sharded"), (1, "replicated")],
        [(2, "replicated"), (3, "sharded"), (2, "sharded")],
        [(3, "replicated"), (2, "replicated"), (1, "sharded")],
    ],
)
def test_any_world_goes_on_from_any_others_snapshot(tmp_path: Path, worlds: list[tuple[int, str]]) -> None:
    straight = tmp_path / "straight"
    for epoch, (size, kind) in enumerate(worlds, start=1):
        ranks(tmp_path / "changing", size, kind, epoch, f"run-{epoch}")
        ranks(straight, 1, "replicated", epoch, f"run-{epoch}")
        expected, found = newest(straight), newest(tmp_path / "changing")
        assert sorted(found) == sorted(expected)
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, msg=name)
