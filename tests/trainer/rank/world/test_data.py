"""Each rank's part of a step: its samples, weight and augmentation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from kittrain.job.env import RankEnv
from kittrain.rank.world.batch_loading import Augment
from kittrain.rank.world.data import Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor


class Squares(Dataset[torch.Tensor]):
    """Sample i is i squared."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index) ** 2)


def world(rank: int = 0, size: int = 1) -> World:
    return World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))


@given(samples=st.integers(1, 20), batch=st.integers(1, 25), size=st.integers(1, 6))
def test_weighted_means_average_to_the_global_mean(samples: int, batch: int, size: int) -> None:
    data = Data(Squares(samples), batch=batch)
    ranks = [data.batches(Cursor(), 1, world(rank, size)) for rank in range(size)]
    for parts in zip(*ranks, strict=True):
        ids = [sample for part in parts for sample in part.ids]
        averaged = sum(part.weight * part.samples.mean().item() for part in parts) / size
        assert averaged == pytest.approx(sum(i**2 for i in ids) / len(ids))
        assert all(len(part.samples) == max(len(part.ids), 1) for part in parts)


@pytest.mark.parametrize("workers", [0, 1])
def test_augmentation_depends_on_seed_epoch_and_sample_only(workers: int) -> None:
    def seen(cursor: Cursor, size: int) -> dict[tuple[int, int], float]:
        noisy = Data(Squares(6), batch=4, seed=7, workers=workers, augment=noise)
        parts = [part for rank in range(size) for part in noisy.batches(cursor, 2, world(rank, size))]
        return {
            (part.span.epoch, sample): value.item()
            for part in parts
            for sample, value in zip(part.ids, part.samples, strict=False)
        }

    straight = seen(Cursor(), 1)
    assert len(set(straight.values())) == 12  # a sample differs from epoch to epoch
    assert seen(Cursor(), 2) == straight
    assert seen(Cursor(0, 4), 1).items() <= straight.items()


def noise(sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return sample + torch.rand((), generator=generator)


class SquaresAtOnce(Squares):
    """Returns a batch's samples at once."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.requests: list[list[int]] = []

    def __getitem__(self, index: int) -> torch.Tensor:
        raise AssertionError(index)

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        self.requests.append(indices)
        return [torch.tensor(float(index) ** 2) for index in indices]


@pytest.mark.parametrize("augment", [None, noise])
def test_getitems_is_called_once_per_batch(augment: Augment | None) -> None:
    dataset = SquaresAtOnce(6)
    one, another = (Data(source, batch=4, augment=augment) for source in (dataset, Squares(6)))
    batches = list(one.batches(Cursor(), 2, world()))
    for batch, expected in zip(batches, another.batches(Cursor(), 2, world()), strict=True):
        assert torch.equal(batch.samples, expected.samples)
    assert dataset.requests == [batch.ids for batch in batches]


def test_loading_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    for _ in Data(Squares(5), batch=2).batches(Cursor(), 2, world()):
        pass
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("samples", "batch"), [(0, 1), (1, 0)])
def test_an_empty_data_set_or_batch_is_an_error(samples: int, batch: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Data(Squares(samples), batch=batch)
