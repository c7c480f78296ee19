"""Snapshots of a state on a GPU: copied to pinned memory during training."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.files import layout
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.saved import weights_of

WIDTH = 1024


def test_memory_for_a_gpus_state_is_pinned_and_aligned_for_direct_io():
    taken = layout.aligned_memory(10_000, pinned=True)
    assert taken.is_pinned()
    assert taken.numel() == 10_000
    assert taken.data_ptr() % 4096 == 0


def test_a_snapshot_holds_the_state_of_the_moment_it_began(tmp_path: Path):
    device = torch.device("cuda", 0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8))).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    world = World(env=RankEnv(snapshot_dir=tmp_path), device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.rand(64, WIDTH, device=device)).square().mean().backward()
        optimizer.step()

    state = State(model=model, optimizer=optimizer)
    with SnapshotManager(world, state, Order(samples=1000, batch=1)) as manager:
        manager.restore()
        step()
        for _ in range(50):
            step()  # the copy has to wait for these kernels
        manager.begin(Cursor(0, 51), {})
        moment = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
        for _ in range(50):
            step()  # and must not see these
        manager.commit(Cursor(0, 101), {})
    (first, last) = sorted(tmp_path.glob("step-*"))
    assert equal(weights_of(first), moment)
    assert equal(weights_of(last), {name: tensor.cpu() for name, tensor in model.state_dict().items()})


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
