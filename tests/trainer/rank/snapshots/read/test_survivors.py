"""Ranks that have outlived their round agree on the last step, and all have the state of the one that is ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from kittrain import World, join
from kittrain.rank.snapshots.read.survivors import StatesDifferError, agree, seeded_alike, share
from kittrain.rank.snapshots.state.state import State
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork, placed

pytestmark = pytest.mark.slow


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.weights = nn.Parameter(torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last))
        self.norm = nn.BatchNorm1d(2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(self.linear(inputs)).square().sum() + self.weights.square().sum()
        return result


def trained(seed: int, steps: int) -> tuple[State, nn.Module]:
    torch.manual_seed(seed)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(4, 3)).backward()
        optimizer.step()
    return State(model=model, optimizer=optimizer), model


def contents(state: State) -> dict[str, list[float]]:
    tensors, _ = state.capture()
    return {name: one.detach().flatten().tolist() for name, one in sorted(tensors.items())}


def share_from_the_one_ahead(world: World) -> None:
    """Rank 0 is behind, rank 1 ahead; rank 2 is new, or its optimizer step was cut short."""
    steps, outlived = [(3, True), (4, True), (None, False)][world.rank]
    state, _ = trained(world.rank, steps or 0)
    sources = agree(world, steps, outlived=outlived)
    assert sources == {0: 1}
    changed: list[int] = []
    share(world, state, sources=sources, has=steps == 4, change=lambda: changed.append(1))
    assert bool(changed) == (world.rank != 1)
    expected, _ = trained(1, 4)
    assert contents(state) == contents(expected)


def refuse_different_states(world: World) -> None:
    state, model = trained(1, 2)
    if world.rank == 2:
        with torch.no_grad():
            next(model.parameters())[0] += 1e-6
    with pytest.raises(StatesDifferError, match="different states after the same steps"):
        share(world, state, sources={0: 0}, has=True, change=lambda: None)


def take_the_batch_statistics_of_one(world: World) -> None:
    state, model = trained(1, 2)
    model.get_buffer("norm.running_mean").fill_(world.rank)
    share(world, state, sources={0: 1}, has=True, change=lambda: None)
    assert model.get_buffer("norm.running_mean").tolist() == [1, 1]


def agree_that_nobody_has_a_state(world: World) -> None:
    assert agree(world, None, outlived=False) is None
    with pytest.raises(StatesDifferError, match="cut short on each rank"):
        agree(world, None, outlived=world.rank == 1)


def agree_on_each_part_of_a_model(world: World) -> None:
    part = world.rank % 2
    assert agree(world, [3, 4, 4][world.rank], outlived=True, part=part) == {0: 2, 1: 1}
    with pytest.raises(StatesDifferError, match="holds part 2 of 2 of the model"):
        agree(world, [4, None, 4][world.rank], outlived=True, part=part)
    with pytest.raises(StatesDifferError, match="holds part 1 of 2 of the model"):
        agree(world, [3, 4, 3][world.rank], outlived=True, part=part)


def know_whether_the_script_has_seeded_all_alike(world: World) -> None:
    torch.manual_seed(5)
    assert seeded_alike(world)
    torch.manual_seed(5 + world.rank // 2)
    assert not seeded_alike(world)


def be_rank(folder: str) -> None:
    with join() as world:
        for check in (
            share_from_the_one_ahead,
            refuse_different_states,
            take_the_batch_statistics_of_one,
            agree_that_nobody_has_a_state,
            agree_on_each_part_of_a_model,
            know_whether_the_script_has_seeded_all_alike,
        ):
            check(world)
            world.barrier()
        Path(folder, f"{world.rank}.done").touch()


def test_three_ranks_agree_and_share_the_state(tmp_path: Path) -> None:
    port = free_port()
    ranks = [fork(in_environment, placed(rank, 3, port), str(tmp_path)) for rank in range(3)]
    assert [finish(rank) for rank in ranks] == [0, 0, 0]
    assert len(list(tmp_path.glob("*.done"))) == 3


def in_environment(env: dict[str, str], folder: str) -> None:
    import os  # noqa: PLC0415  in the rank's process

    os.environ.update(env, KIT_BACKEND="gloo")
    be_rank(folder)
