"""Loading a rank's part of a step, so that random numbers drawn on the way depend on what is loaded, and on no process.

Before each sample, the CPU's global generators (torch's, Python's, numpy's) are seeded from the data's seed, the epoch
and the sample's id: in a worker and in the training process alike. So it does not matter how many workers or ranks
there are, or where training was resumed. What is drawn for several samples at once depends on where the part begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate, get_worker_info

from kittrain.world import rng
from kittrain.world.seeds import derive

Sample = Any
Collate = Callable[[list[Sample]], Any]
Augment = Callable[[Sample, torch.Generator], Sample]

with suppress(ImportError):  # only where it is imported it is seeded, and a data set may import it as it loads
    import numpy.random  # noqa: F401


@dataclass(frozen=True)
class Part:
    """What is loaded as one batch: samples of an epoch, the first of them at a position of the epoch's order."""

    epoch: int
    position: int
    ids: Sequence[int]


class Loading(Dataset[Any]):
    """A data set of batches, asked by ``Part``.

    Args:
        dataset: the user's, map-style.
        seed: of all that is drawn.
        collate: makes a batch of a list of samples; None takes torch's default.
        augment: changes a sample with a generator of its own.
    """

    def __init__(
        self,
        dataset: Dataset[Sample],
        *,
        seed: int = 0,
        collate: Collate | None = None,
        augment: Augment | None = None,
    ) -> None:
        self._dataset = dataset
        self._seed = seed
        self._collate = collate
        self._augment = augment
        self._draws = draws(dataset)
        self._fetch = dataset.__getitems__ if loads_at_once(dataset) else None  # type: ignore[attr-defined]

    def __getitem__(self, part: Part) -> Any:
        """Load, augment and collate a part. The process's own generators stay as they are."""
        with self._generators():
            return self._collated(part, self._augmented(part, self._samples(part)))

    def _generators(self) -> AbstractContextManager[None]:
        still = not (self._draws or self._augment or self._collate)
        return nullcontext() if still or get_worker_info() else rng.preserved()

    def _samples(self, part: Part) -> list[Sample]:
        if self._fetch:
            self._seed_for("samples", part.epoch, part.position)
            return list(self._fetch(list(part.ids)))
        if not self._draws:
            return [self._dataset[one] for one in part.ids]
        return [self._sample(part.epoch, one) for one in part.ids]

    def _sample(self, epoch: int, one: int) -> Sample:
        self._seed_for("draws", epoch, one)
        return self._dataset[one]

    def _augmented(self, part: Part, samples: list[Sample]) -> list[Sample]:
        if self._augment is None:
            return samples
        augmented = []
        for one, sample in zip(part.ids, samples, strict=True):
            self._seed_for("augment", part.epoch, one)
            generator = torch.Generator().manual_seed(derive("sample", self._seed, part.epoch, one))
            augmented.append(self._augment(sample, generator))
        return augmented

    def _collated(self, part: Part, samples: list[Sample]) -> Any:
        if self._collate is None:
            return default_collate(samples)
        self._seed_for("collate", part.epoch, part.position)
        return self._collate(samples)

    def _seed_for(self, purpose: str, epoch: int, place: int) -> None:
        rng.seed_cpu(derive(purpose, self._seed, epoch, place))


def as_it_is(batch: Any) -> Any:
    """What a loader does with batches that come collated."""
    return batch


def draws(dataset: object) -> bool:
    """Whether a data set may draw random numbers: all but plain tensors may."""
    if type(dataset) is Subset:
        return draws(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return any(map(draws, dataset.datasets))
    return type(dataset) is not TensorDataset


def loads_at_once(dataset: object) -> bool:
    """Whether a data set has a quicker way to load several samples than one after the other.

    A subset has what it is a subset of: its own ``__getitems__`` is a loop otherwise.
    """
    if type(dataset) is Subset:
        return loads_at_once(dataset.dataset)
    return callable(getattr(dataset, "__getitems__", None))
