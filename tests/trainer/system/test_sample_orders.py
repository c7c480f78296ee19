"""Ranks that do not divide a data set are told so; those that have a reason to differ are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, Subset, TensorDataset

from kittrain.system.sample_orders import APART, MOST, SIZE, SampleOrder, difference, distinct

ZERO = SampleOrder(rank=0, parts=2, part=0, samples=100, seed=0, shuffle=True)
ONE = replace(ZERO, rank=1, part=1)
OURS, THEIRS = "the DistributedSampler of rank 0 has", "that of rank 1"


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (ZERO, replace(ONE, seed=1), f"{OURS} seed=0, that of rank 1 seed=1"),
        (ZERO, replace(ONE, shuffle=False), f"{OURS} shuffle=True, that of rank 1 shuffle=False"),
        (ZERO, replace(ONE, parts=1, part=0), f"{OURS} num_replicas=2, that of rank 1 num_replicas=1"),
        (ZERO, replace(ONE, samples=90), f"{OURS} 100 samples, that of rank 1 90"),
        (ZERO, replace(ONE, part=0), f"{OURS} rank=0, that of rank 1 rank=0"),
        (replace(ZERO, indices=1), replace(ONE, indices=2), f"{OURS} other indices of the data set than {THEIRS}"),
    ],
)
def test_what_the_ranks_have_not_in_common_is_told(first: SampleOrder, second: SampleOrder, told: str) -> None:
    assert difference(distinct([second, first]), 2) == f"{told}: they {APART}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ZERO, ONE),
        (replace(ZERO, shuffle=False), replace(ONE, shuffle=False, seed=7)),  # no seed has a part in that
        (replace(ZERO, part=1), replace(ONE, part=0)),  # another way to divide it
        (replace(ZERO, parts=1), replace(ONE, parts=1, part=0, seed=1)),  # each has data of its own
    ],
)
def test_what_divides_the_data_or_has_a_reason_is_not_told(first: SampleOrder, second: SampleOrder) -> None:
    assert difference(distinct([first, second]), 2) == ""
    assert difference([], 2) == ""


def test_groups_of_ranks_may_have_data_of_their_own() -> None:
    ranks = [replace(ZERO, rank=rank, part=rank % 2, seed=rank // 2) for rank in range(4)]
    assert difference(distinct(ranks), 4) == ""


def test_few_are_sent_on_from_many_ranks() -> None:
    assert len(distinct(replace(ZERO, rank=rank, part=rank) for rank in range(10_000))) == 1
    assert len(distinct(replace(ZERO, rank=rank, part=rank, seed=rank) for rank in range(10_000))) == MOST
    unshuffled = replace(ZERO, shuffle=False)
    assert len(distinct(replace(unshuffled, rank=rank, part=rank, seed=rank) for rank in range(10_000))) == 1


def test_a_sampler_is_read_as_it_was_written() -> None:
    page = bytearray(SIZE + 3)
    assert SampleOrder.read(bytes(page), 3, 1) is None
    data = TensorDataset(torch.zeros(7))
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=3, rank=2, seed=-5)
    SampleOrder.write(page, 3, sampler)
    expected = SampleOrder(rank=1, parts=3, part=2, samples=7, seed=-5, shuffle=True)
    assert SampleOrder.read(bytes(page), 3, 1) == expected


@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_a_part_of_a_data_set_is_known_by_its_indices(kind: Callable[[list[int]], Any]) -> None:
    data = TensorDataset(torch.zeros(1000))

    def read(dataset: Any) -> int:
        page = bytearray(SIZE)
        SampleOrder.write(page, 0, DistributedSampler(dataset, num_replicas=2, rank=0))
        order = SampleOrder.read(bytes(page), 0, 0)
        assert order
        return order.indices

    first, again, other = (torch.randperm(1000, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert read(Subset(data, kind(first.tolist()))) == read(Subset(data, again.tolist())) != 0
    assert read(Subset(data, kind(first.tolist()))) != read(Subset(data, other.tolist()))
    assert read(data) == 0


@pytest.mark.parametrize("indices", [None, 7, "abc", {"a": 1}, lambda: [1], []])
def test_what_has_the_name_of_indices_and_is_something_else_says_nothing(indices: Any) -> None:
    page, data = bytearray(SIZE), TensorDataset(torch.zeros(7))
    data.indices = indices  # type: ignore[attr-defined]
    SampleOrder.write(page, 0, DistributedSampler(data, num_replicas=2, rank=0))
    order = SampleOrder.read(bytes(page), 0, 0)
    assert order
    assert order.samples == 7
    assert not order.indices or indices == []
