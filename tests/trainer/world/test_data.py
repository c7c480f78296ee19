"""The data's order: exactly once, whatever the world does."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from trainer.env import RankEnv
from trainer.world.data import Cursor, Data, Order, portion, to_device
from trainer.world.distributed import World

Worlds = list[tuple[int, int]]


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


@given(
    samples=st.integers(1, 60),
    batch=st.integers(1, 70),
    seed=st.integers(0, 2**40),
    epochs=st.integers(1, 3),
    worlds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), max_size=6),
)
def test_each_sample_of_each_epoch_once_in_equal_batches(
    samples: int, batch: int, seed: int, epochs: int, worlds: Worlds
) -> None:
    order = Order(samples=samples, batch=batch, seed=seed)
    straight = [order.ids(span) for span in order.spans(Cursor(), epochs)]
    cursor, batches = Cursor(), []
    for size, steps in [*worlds, (4, 10**6)]:  # a world of a size takes some steps, then the next one goes on
        for span, _ in zip(order.spans(cursor, epochs), range(steps), strict=False):
            parts = [portion(order.ids(span), rank, size) for rank in range(size)]
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            assert len(parts[0]) == max(map(len, parts))
            batches.append([sample for part in parts for sample in part])
            cursor = order.after(span)
            assert order.step(cursor) == len(batches)
    assert batches == straight
    assert cursor == Cursor(epochs)
    for epoch in range(epochs):
        of_epoch = batches[epoch * order.steps_per_epoch : (epoch + 1) * order.steps_per_epoch]
        assert sorted(chain(*of_epoch)) == list(range(samples))


def test_orders_differ_by_epoch_and_seed_and_never_change() -> None:
    order = Order(samples=10, batch=10, seed=0)
    first, second = (order.ids(span) for span in order.spans(Cursor(), 2))
    assert first == [9, 5, 2, 0, 6, 3, 8, 7, 1, 4]  # on every machine, with every version
    assert first != second
    assert first != Order(samples=10, batch=10, seed=1).ids(next(order.spans(Cursor(), 1)))


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
    assert len(set(straight.values())) == 12  # each sample anew in each epoch
    assert seen(Cursor(), 2) == straight
    assert seen(Cursor(0, 4), 1).items() <= straight.items()


def noise(sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return sample + torch.rand((), generator=generator)


def test_loading_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state()
    for _ in Data(Squares(5), batch=2).batches(Cursor(), 2, world()):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_fingerprints_tell_orders_apart() -> None:
    orders = [Order(samples=9, batch=3), Order(samples=9, batch=4), Order(samples=9, batch=3, seed=1)]
    prints = sorted(order.fingerprint for order in orders)
    assert all(a != b for a, b in pairwise(prints))


@pytest.mark.parametrize(("samples", "batch"), [(0, 1), (1, 0)])
def test_nothing_to_learn_from_is_an_error(samples: int, batch: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Data(Squares(samples), batch=batch)


def test_batches_of_any_shape_are_moved() -> None:
    meta = torch.device("meta")
    moved = to_device({"a": [torch.zeros(1), (torch.zeros(1), "text")]}, meta)
    assert moved["a"][0].device == moved["a"][1][0].device == meta
    assert moved["a"][1][1] == "text"
