"""Data sets of the same length have different fingerprints, where possible."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from kittrain import Data
from kittrain.rank.world.dataset_fingerprint import dataset_fingerprint

ONE = TensorDataset(torch.arange(1000.0).reshape(100, 10), torch.arange(100) % 2 == 0)
OTHER = TensorDataset(torch.arange(1000.0).reshape(100, 10), torch.arange(100) % 3 == 0)


class Tagged(Dataset[int]):
    """A data set with an attribute ``fingerprint``."""

    def __init__(self, fingerprint: object = None) -> None:
        self.fingerprint = fingerprint

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
        (Tagged("v1"), Tagged("v2")),
    ],
)
def test_different_contents_have_different_fingerprints(different) -> None:
    prints = sorted(map(dataset_fingerprint, different))
    assert prints[0]
    assert all(a != b for a, b in pairwise(prints))


def test_equal_contents_have_equal_fingerprints() -> None:
    again = TensorDataset(*(tensor.clone() for tensor in ONE.tensors))
    assert dataset_fingerprint(again) == dataset_fingerprint(ONE)
    assert dataset_fingerprint(Subset(again, [1, 2])) == dataset_fingerprint(Subset(ONE, range(1, 3)))


@pytest.mark.parametrize(
    "unknown",
    [
        Tagged(),
        Tagged(lambda: "method"),
        Subset(Tagged(), [1]),
        ConcatDataset([ONE, Tagged()]),
    ],
)
def test_other_data_sets_have_no_fingerprint(unknown) -> None:
    assert dataset_fingerprint(unknown) == ""


def test_it_is_part_of_the_fingerprint_of_the_order() -> None:
    one, other = (Data(dataset, batch=10).order.fingerprint for dataset in (ONE, OTHER))
    assert one != other
