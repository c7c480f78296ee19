"""Nobody is given a single sample to make statistics of, where that can be helped; and what cannot is told."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, World
from kittrain.env import RankEnv
from kittrain.training import batchnorm
from kittrain.training.gradients import Averaged
from kittrain.training.pulse import Word
from kittrain.training.virtual import VirtualRanks
from kittrain.world.order import Cursor, Order, portion

FLAT = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
IMAGES = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
FROZEN = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2).eval())
OTHER = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2), nn.SyncBatchNorm(2))


@given(samples=st.integers(1, 200), size=st.integers(1, 50), least=st.integers(1, 2))
def test_everything_is_shared_out_once_and_nobody_has_less_than_the_least(samples: int, size: int, least: int) -> None:
    parts = [portion(range(samples), rank, size, least=least) for rank in range(size)]
    assert [one for part in parts for one in part] == list(range(samples))
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    some = [length for length in lengths if length]
    assert max(some) - min(some) <= 1
    assert min(some) >= min(least, samples)
    if samples >= least * size:
        assert len(some) == size
        assert lengths == [len(portion(range(samples), rank, size)) for rank in range(size)]


@pytest.mark.parametrize(
    ("model", "batch", "size", "least"),
    [
        (FLAT, 8, 4, 2),
        (FLAT, 7, 4, 2),  # torch would refuse one sample
        (IMAGES, 8, 4, 2),
        (IMAGES, 7, 4, 1),  # this is how it was asked for
        (FROZEN, 8, 4, 1),
        (OTHER, 8, 4, 1),
    ],
)
def test_how_many_a_rank_takes_at_least(model: nn.Module, batch: int, size: int, least: int) -> None:
    assert batchnorm.least(model, batch, size) == least


@pytest.mark.parametrize(
    ("model", "samples", "batch", "size", "told"),
    [
        (FLAT, 20, 8, 4, []),
        (FLAT, 17, 8, 4, ["last step of an epoch has one sample (17 samples in batches of 8)"]),
        (FLAT, 17, 8, 1, ["17 samples in batches of 8"]),
        (FLAT, 1, 8, 1, ["1 samples in batches of 8"]),
        (FLAT, 20, 6, 4, []),  # 2, 2, 2 and none
        (IMAGES, 20, 6, 4, ["a batch of 6 leaves some of 4 ranks one sample a step: take 8 or more"]),
        (IMAGES, 19, 6, 4, ["take 8 or more", "19 samples in batches of 6"]),
        (OTHER, 17, 8, 4, []),
    ],
)
def test_what_is_told_at_the_start(model: nn.Module, samples: int, batch: int, size: int, told: list[str]) -> None:
    text = batchnorm.warning(model, Order(samples=samples, batch=batch), size)
    assert bool(text) == bool(told)
    assert all(one in text for one in told)


def test_a_step_is_the_same_sum_however_it_is_shared_out() -> None:
    """The last step has 3 samples for 4 ranks: 3, 0, 0 and 0, where one each would be refused by torch."""
    learned = {rank: learn(rank, 4) for rank in range(4)}
    assert [ids for ids, *_ in learned.values()] == [[3, 3], [3, 0], [2, 0], [2, 0]]
    for rank in (1, 2, 3):
        _, gradient, buffers = learned[rank]
        assert gradient[-1].count_nonzero() == 0
        assert torch.equal(buffers[-1], buffers[-2])  # a step without samples moves no statistics
    assert not torch.equal(learned[0][2][-1], learned[0][2][-2])


def learn(rank: int, size: int) -> tuple[list[int], list[Tensor], list[Tensor]]:
    """How many samples a rank has in each of two steps, its gradients, and its running means."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    linear, norm = model[0], model[1]
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    world = World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))
    data = Data(TensorDataset(torch.rand(13, 3), torch.rand(13, 1)), batch=10)
    gradients = Averaged(world, model, loss, data)
    counts, found, means = list[int](), list[Tensor](), list[Tensor]()
    for parts in gradients.batches(Cursor(), 1):
        model.zero_grad()
        gradients.learn(parts, Word)
        counts.append(len(parts[0].ids))
        assert linear.weight.grad is not None
        assert norm.running_mean is not None
        found.append(linear.weight.grad.clone())
        means.append(norm.running_mean.clone())
    assert norm.training
    return counts, found, means


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return functional.mse_loss(model(batch[0]), batch[1])


def test_virtual_ranks_share_out_alike() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    world = World(env=RankEnv(), device=torch.device("cpu"))
    data = Data(TensorDataset(torch.rand(13, 3), torch.rand(13, 1)), batch=10)
    gradients = VirtualRanks(world, model, loss, data, 4)
    taken = []
    try:
        for parts in gradients.batches(Cursor(), 1):
            taken.append([len(part.ids) for part in parts])
            gradients.learn(parts, Word)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert taken == [[3, 3, 2, 2], [3, 0, 0, 0]]
