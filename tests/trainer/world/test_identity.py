"""Data sets of one length are told apart, where they can be."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from kittrain import Data
from kittrain.world.identity import identity

ONE = TensorDataset(torch.arange(1000.0).reshape(100, 10), torch.arange(100) % 2 == 0)
OTHER = TensorDataset(torch.arange(1000.0).reshape(100, 10), torch.arange(100) % 3 == 0)


class Own(Dataset[int]):
    """A data set that can say what it is."""

    def __init__(self, word: object = None) -> None:
        self.fingerprint = word

    def __len__(self) -> int:
        return 100


@pytest.mark.parametrize(
    "different",
    [
        (ONE, OTHER),
        (ONE, TensorDataset(*(tensor.half() for tensor in ONE.tensors))),
        (ONE, TensorDataset(*reversed(ONE.tensors))),
        (Subset(ONE, [1, 2]), Subset(ONE, [2, 1]), Subset(OTHER, [1, 2])),
        (ConcatDataset([ONE, OTHER]), ConcatDataset([OTHER, ONE])),
        (Own("v1"), Own("v2")),
    ],
)
def test_other_contents_are_another_data_set(different) -> None:
    prints = sorted(map(identity, different))
    assert prints[0]
    assert all(a != b for a, b in pairwise(prints))


def test_the_same_contents_are_the_same_data_set() -> None:
    again = TensorDataset(*(tensor.clone() for tensor in ONE.tensors))
    assert identity(again) == identity(ONE)
    assert identity(Subset(again, [1, 2])) == identity(Subset(ONE, range(1, 3)))


@pytest.mark.parametrize("unknown", [Own(), Own(lambda: "method"), Subset(Own(), [1]), ConcatDataset([ONE, Own()])])
def test_what_does_not_say_what_it_is_is_known_by_its_length_alone(unknown) -> None:
    assert identity(unknown) == ""


def test_it_is_part_of_what_a_snapshot_is_held_against() -> None:
    one, other = (Data(dataset, batch=10).order.fingerprint for dataset in (ONE, OTHER))
    assert one != other
