"""Virtual ranks: one tree of sums for any assignment to ranks, and so the same loss curve for any number of ranks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from kittrain import Data, World, join
from kittrain.job.env import RankEnv
from kittrain.rank.training.step_sync import StepMessage
from kittrain.rank.training.virtual_ranks import TreeNode, VirtualRanks, children, cover, tree_sum
from kittrain.rank.world.order import Cursor, rank_share
from tests.trainer.nodes import TIMEOUT, free_port
from tests.trainer.worlds import Ranks, finish, fork, placed

VIRTUAL = 6
worlds = st.tuples(st.integers(1, 40), st.integers(1, 50))


@given(worlds)
def test_the_nodes_of_all_ranks_cover_the_tree(world: tuple[int, int]) -> None:
    count, ranks = world
    nodes = [node for rank in range(ranks) for node in cover(part(count, ranks, rank), (0, count))]
    assert [virtual for low, high in nodes for virtual in range(low, high)] == list(range(count))
    assert max(len(cover(part(count, ranks, rank), (0, count))) for rank in range(ranks)) <= 2 * count.bit_length()


@given(worlds, st.integers(0, 2**32))
def test_the_sum_has_the_same_bits_for_any_number_of_ranks(world: tuple[int, int], seed: int) -> None:
    count, ranks = world
    leaves = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed)) * 1e3
    alone = tree_sum((0, count), {(virtual, virtual + 1): leaf for virtual, leaf in enumerate(leaves)})
    shared: dict[TreeNode, Tensor] = {}
    for rank in range(ranks):
        for node in cover(part(count, ranks, rank), (0, count)):
            shared[node] = tree_sum(node, {(virtual, virtual + 1): leaves[virtual] for virtual in range(*node)})
    assert torch.equal(tree_sum((0, count), shared), alone)


def test_a_node_of_three_has_children_of_two_and_one() -> None:
    assert children((4, 7)) == ((4, 6), (6, 7))


def test_each_virtual_rank_of_each_step_has_random_numbers_of_its_own() -> None:
    """As ranks have: else all draw the same dropout mask, which no comparison of numbers of ranks shows."""
    drawn: list[float] = []

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        drawn.append(torch.rand(()).item())
        result: Tensor = model(batch[0]).mean()
        return result

    world = World(env=RankEnv(), device=torch.device("cpu"))
    data = Data(torch.utils.data.TensorDataset(torch.ones(2 * VIRTUAL, 1)), batch=VIRTUAL)
    for _ in range(2):  # the second time again: the seeds are the job's, not the process's
        gradients = VirtualRanks(world, nn.Linear(1, 1), loss, data, VIRTUAL)
        for parts in gradients.batches(Cursor(0, 0), 1):
            gradients.backward(parts, StepMessage)
    first, second = drawn[: 2 * VIRTUAL], drawn[2 * VIRTUAL :]
    assert first == second
    assert len(set(first)) == 2 * VIRTUAL


@pytest.mark.slow
def test_one_loss_curve_for_1_2_3_and_4_ranks(tmp_path: Path) -> None:
    curves = {size: curve(tmp_path / str(size), size) for size in (1, 2, 3, 4)}
    assert len(curves[1]) == 16
    assert [curves[size] == curves[1] for size in curves] == [True] * 4
    weights = [(tmp_path / str(size) / "snapshots" / "model.pt") for size in curves]
    first, *others = [torch.load(path, weights_only=True) for path in weights]
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)


@pytest.mark.slow
def test_losses_in_double_precision_have_the_same_bits_on_any_number_of_ranks(tmp_path: Path) -> None:
    """Rounded, 7 * x / 7 is not always x."""
    for size in (1, 7):
        port = free_port()
        ranks = [fork(write_losses, rank, size, port, tmp_path / f"{size}-{rank}") for rank in range(size)]
        assert [finish(rank) for rank in ranks] == [0] * size
    one, *others = [path.read_text() for path in sorted(tmp_path.iterdir())]
    assert len(others) == 7
    assert others == [one] * 7


def write_losses(rank: int, size: int, port: int, out: Path) -> None:
    """Write the losses of forty epochs of one step each, in hexadecimal."""
    os.environ.update({**placed(rank, size, port), "KIT_BACKEND": "gloo", "OMP_NUM_THREADS": "1"})
    generator = torch.Generator().manual_seed(0)
    samples = torch.rand(VIRTUAL, 3, generator=generator, dtype=torch.float64)
    with join(seed=1) as world:
        model = nn.Linear(3, 1, dtype=torch.float64)
        data = Data(torch.utils.data.TensorDataset(samples), batch=VIRTUAL)
        gradients = VirtualRanks(world, model, lambda model, batch: model(batch[0]).square().mean(), data, VIRTUAL)
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.01), list[str]()
        for parts in gradients.batches(Cursor(0, 0), 40):
            losses.append(gradients.backward(parts, StepMessage).read()[0].hex())
            optimizer.step()
    out.write_text("\n".join(losses))


@pytest.mark.wide
@pytest.mark.slow
def test_the_same_curve_across_a_kill_and_a_resize(tmp_path: Path) -> None:
    ranks = runner(tmp_path / "killed", rest="0.05")
    ranks.start(3)
    deadline = time.monotonic() + TIMEOUT
    while len(read(ranks.folder)) < 8:
        assert time.monotonic() < deadline, ranks.log.read_text()
        time.sleep(0.05)
    for rank in range(3):
        ranks.signal(rank, signal.SIGKILL)
    ranks.wait()
    assert ranks.run(4) == [0] * 4, ranks.log.read_text()
    assert read(ranks.folder) == curve(tmp_path / "whole", 1)


@pytest.mark.slow
def test_without_virtual_ranks_the_curves_differ(tmp_path: Path) -> None:
    assert curve(tmp_path / "1", 1, virtual=0) != curve(tmp_path / "2", 2, virtual=0)


def test_parameters_of_several_dtypes_are_an_error() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())
    world = World(env=RankEnv(), device=torch.device("cpu"))
    data = Data(torch.utils.data.TensorDataset(torch.zeros(1, 1)), batch=1)
    with pytest.raises(ValueError, match="one dtype"):
        VirtualRanks(world, model, lambda _, batch: batch[0].sum(), data, 2)


def part(count: int, ranks: int, rank: int) -> range:
    held = rank_share(range(count), rank, ranks)
    assert isinstance(held, range)
    return held


def curve(folder: Path, size: int, *, virtual: int = VIRTUAL) -> list[str]:
    """The losses of a run, in hexadecimal."""
    ranks = runner(folder, virtual=virtual)
    assert ranks.run(size) == [0] * size, ranks.log.read_text()
    return read(folder)


def runner(folder: Path, *, virtual: int = VIRTUAL, rest: str = "0") -> Ranks:
    folder.mkdir()
    return Ranks(folder, "tests.trainer.scripts.curve", str(folder / "losses"), str(virtual), rest, OMP_NUM_THREADS="1")


def read(folder: Path) -> list[str]:
    """The loss of each step, from the latest generation that took it."""
    path = folder / "losses"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    latest = {int(step): loss for step, _, loss in sorted(lines, key=lambda line: int(line[1]))}
    return [latest[step] for step in sorted(latest)]
