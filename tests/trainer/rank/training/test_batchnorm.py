"""Ranks with batch normalization get no single samples where possible; otherwise there is a warning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, World
from kittrain.job.env import RankEnv
from kittrain.rank.training import batchnorm
from kittrain.rank.training.gradients import AveragedGradients
from kittrain.rank.training.step_sync import StepMessage
from kittrain.rank.training.virtual_ranks import VirtualRanks
from kittrain.rank.world.order import Cursor, Order, rank_share

FLAT = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
IMAGES = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
FROZEN = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2).eval())
OTHER = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2), nn.SyncBatchNorm(2))


@given(samples=st.integers(1, 200), size=st.integers(1, 50), minimum=st.integers(1, 2))
def test_shares_are_disjoint_and_complete_and_not_below_the_minimum(samples: int, size: int, minimum: int) -> None:
    parts = [rank_share(range(samples), rank, size, minimum=minimum) for rank in range(size)]
    assert [one for part in parts for one in part] == list(range(samples))
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    some = [length for length in lengths if length]
    assert max(some) - min(some) <= 1
    assert min(some) >= min(minimum, samples)
    if samples >= minimum * size:
        assert len(some) == size
        assert lengths == [len(rank_share(range(samples), rank, size)) for rank in range(size)]


@pytest.mark.parametrize(
    ("model", "batch", "size", "minimum"),
    [
        (FLAT, 8, 4, 2),
        (FLAT, 7, 4, 2),  # torch raises an error for one sample
        (IMAGES, 8, 4, 2),
        (IMAGES, 7, 4, 1),  # the batch is too small for 2 each
        (FROZEN, 8, 4, 1),
        (OTHER, 8, 4, 1),
    ],
)
def test_minimum_samples_per_rank(model: nn.Module, batch: int, size: int, minimum: int) -> None:
    assert batchnorm.min_samples_per_rank(model, batch, size) == minimum


@pytest.mark.parametrize(
    ("model", "samples", "batch", "size", "expected"),
    [
        (FLAT, 20, 8, 4, []),
        (FLAT, 17, 8, 4, ["last step of an epoch has one sample (17 samples in batches of 8)"]),
        (FLAT, 17, 8, 1, ["17 samples in batches of 8"]),
        (FLAT, 1, 8, 1, ["1 samples in batches of 8"]),
        (FLAT, 20, 6, 4, []),  # 2, 2, 2 and none
        (IMAGES, 20, 6, 4, ["a batch of 6 gives some of 4 ranks one sample per step: use 8 or more"]),
        (IMAGES, 19, 6, 4, ["use 8 or more", "19 samples in batches of 6"]),
        (OTHER, 17, 8, 4, []),
    ],
)
def test_warning(model: nn.Module, samples: int, batch: int, size: int, expected: list[str]) -> None:
    text = batchnorm.warning(model, Order(samples=samples, batch=batch), size)
    assert bool(text) == bool(expected)
    assert all(one in text for one in expected)


def test_ranks_without_samples_change_neither_gradients_nor_statistics() -> None:
    """The last step has 3 samples for 4 ranks: 3, 0, 0 and 0, as torch raises an error for a single sample."""
    learned = {rank: learn(rank, 4) for rank in range(4)}
    assert [ids for ids, *_ in learned.values()] == [[3, 3], [3, 0], [2, 0], [2, 0]]
    for rank in (1, 2, 3):
        _, gradient, buffers = learned[rank]
        assert gradient[-1].count_nonzero() == 0
        assert torch.equal(buffers[-1], buffers[-2])  # a step without samples does not change statistics
    assert not torch.equal(learned[0][2][-1], learned[0][2][-2])


def learn(rank: int, size: int) -> tuple[list[int], list[Tensor], list[Tensor]]:
    """A rank's number of samples in each of two steps, its gradients, and its running means."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    linear, norm = model[0], model[1]
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    world = World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))
    data = Data(TensorDataset(torch.rand(13, 3), torch.rand(13, 1)), batch=10)
    gradients = AveragedGradients(world, model, loss, data)
    counts, found, means = list[int](), list[Tensor](), list[Tensor]()
    for parts in gradients.batches(Cursor(), 1):
        model.zero_grad()
        gradients.backward(parts, StepMessage)
        counts.append(len(parts[0].ids))
        assert linear.weight.grad is not None
        assert norm.running_mean is not None
        found.append(linear.weight.grad.clone())
        means.append(norm.running_mean.clone())
    assert norm.training
    return counts, found, means


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return functional.mse_loss(model(batch[0]), batch[1])


def test_virtual_ranks_get_the_same_shares() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    world = World(env=RankEnv(), device=torch.device("cpu"))
    data = Data(TensorDataset(torch.rand(13, 3), torch.rand(13, 1)), batch=10)
    gradients = VirtualRanks(world, model, loss, data, 4)
    taken = []
    try:
        for parts in gradients.batches(Cursor(), 1):
            taken.append([len(part.ids) for part in parts])
            gradients.backward(parts, StepMessage)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert taken == [[3, 3, 2, 2], [3, 0, 0, 0]]
