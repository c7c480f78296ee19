"""What is drawn while samples are loaded depends on what is loaded: on no process, no worker, no rank, no resume."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2

from kittrain.env import RankEnv
from kittrain.world import rng
from kittrain.world.data import Data
from kittrain.world.distributed import World
from kittrain.world.loading import draws, loads_at_once
from kittrain.world.order import Cursor

SAMPLES, BATCH, EPOCHS = 10, 4, 2  # steps of 4, 4 and 2 samples
V1 = v1.Compose([v1.RandomResizedCrop(4, antialias=True), v1.RandomHorizontalFlip(), v1.ColorJitter(0.5)])
V2 = v2.Compose([v2.RandomResizedCrop(4, antialias=True), v2.RandomHorizontalFlip(), v2.ColorJitter(0.5)])
START = Cursor()
Drawn = dict[tuple[int, int], list[float]]  # by epoch and sample


class Images(Dataset[Tensor]):
    """Changes each image by chance, in all ways that are usual."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        image = torch.linspace(0, 1, 3 * 8 * 8).reshape(3, 8, 8) + index / 100
        chances = [random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002  global ones are meant
        return torch.cat([V1(image).flatten()[:20], V2(image).flatten()[:20], torch.tensor(chances)])


class AtOnce(Images):
    """Loads a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [self[index] for index in indices]


def mixed(samples: list[Tensor]) -> Tensor:
    """Collates with weights drawn by chance, in all ways that are usual."""
    return torch.stack(samples) * (random.random() + float(np.random.rand()) + torch.rand(len(samples), 1))  # noqa: NPY002


def world(rank: int = 0, size: int = 1) -> World:
    return World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))


def drawn(
    dataset: Dataset[Tensor],
    cursor: Cursor = START,
    *,
    workers: int = 0,
    size: int = 1,
    seed: int = 7,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Drawn:
    """What all ranks are given from a cursor to the end."""
    data = Data(dataset, batch=BATCH, seed=seed, workers=workers, collate=collate)
    return {
        (batch.span.epoch, sample): values.tolist()
        for rank in range(size)
        for batch in data.batches(cursor, EPOCHS, world(rank, size))
        for sample, values in zip(batch.ids, batch.samples, strict=False)
    }


@pytest.fixture(scope="module")
def undisturbed() -> Drawn:
    return drawn(Images())


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_resumed_in_an_epoch_each_sample_is_what_it_would_have_been(undisturbed: Drawn, workers: int) -> None:
    assert len({tuple(values) for values in undisturbed.values()}) == SAMPLES * EPOCHS
    resumed = drawn(Images(), Cursor(0, BATCH), workers=workers)
    assert len(resumed) == SAMPLES * EPOCHS - BATCH
    assert resumed.items() <= undisturbed.items()


def test_neither_ranks_nor_subsets_matter_and_the_seed_does(undisturbed: Drawn) -> None:
    assert drawn(Images(), size=3) == undisturbed
    assert drawn(Images(), size=3, workers=1) == undisturbed
    whole = Subset(Images(), range(SAMPLES))
    assert drawn(whole, size=2) == undisturbed
    other = drawn(Images(), seed=8)
    assert all(other[key] != undisturbed[key] for key in undisturbed)


def test_batches_loaded_or_collated_at_once_depend_on_where_they_begin() -> None:
    for dataset in (AtOnce(), Subset(AtOnce(), range(SAMPLES))):
        straight = drawn(dataset, collate=mixed)
        assert drawn(dataset, Cursor(0, BATCH), workers=2, collate=mixed).items() <= straight.items()
        assert len({tuple(values) for values in straight.values()}) == SAMPLES * EPOCHS
    worlds = [world(rank, 2) for rank in (0, 1)]
    plain, weighted = (
        [next(Data(Images(), batch=BATCH, collate=collate).batches(START, 1, one)).samples for one in worlds]
        for collate in (None, mixed)
    )
    weights = [after / before for before, after in zip(plain, weighted, strict=True)]
    assert not torch.allclose(weights[0], weights[1])  # ranks draw numbers of their own


def test_loading_leaves_the_processes_own_generators_alone() -> None:
    def chances() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), torch.rand(()).item()  # noqa: NPY002

    for dataset in (Images(), AtOnce()):
        rng.seed_all(5)
        expected = [chances() for _ in range(3)]
        rng.seed_all(5)
        loaded = Data(dataset, batch=BATCH, collate=mixed).batches(Cursor(), 1, world())
        assert [chances() for _ in islice(loaded, 3)] == expected


def test_only_what_holds_nothing_but_tensors_draws_nothing() -> None:
    still = TensorDataset(torch.zeros(3))

    class Noisy(TensorDataset):
        pass

    assert not draws(still)
    assert not draws(Subset(ConcatDataset([still, Subset(still, [0])]), [1]))
    assert draws(Noisy(torch.zeros(3)))
    assert draws(Subset(ConcatDataset([still, Noisy(torch.zeros(3))]), [1]))
    assert not loads_at_once(Subset(Images(), [0]))
    assert loads_at_once(Subset(Subset(AtOnce(), [0]), [0]))
