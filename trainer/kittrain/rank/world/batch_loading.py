"""Loads a rank's batch of a step, with random numbers that depend on the samples and not on the process.

Before each sample, the CPU's global generators (torch's, Python's, numpy's) are seeded from the data's seed, the epoch
and the sample's id, in workers and in the training process alike. So random augmentation does not depend on the number
of workers or ranks, or on where training was resumed. Random numbers for several samples at once depend on the
position of the batch's first sample.

Why: decision 24.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate, get_worker_info

from kittrain.rank.world import rng
from kittrain.rank.world.seeds import derive_seed

Sample = Any
Collate = Callable[[list[Sample]], Any]
Augment = Callable[[Sample, torch.Generator], Sample]

DRAWS: Final = rng.DrawWatch()

with suppress(ImportError):  # imported now, so that it is seeded even if a data set imports it while loading
    import numpy.random  # noqa: F401


@dataclass(frozen=True)
class BatchRequest:
    """The samples of one batch.

    Attributes:
        epoch: from 0 on.
        position: of the first one in the epoch's order.
        ids: of the samples.
        index: the same as a tensor; None: to be made, as a tensor on the way to a worker process costs more.
    """

    epoch: int
    position: int
    ids: Sequence[int]
    index: Tensor | None = field(default=None, compare=False)


class BatchDataset(Dataset[Any]):
    """A data set of whole batches, indexed by ``BatchRequest``.

    Args:
        dataset: the user's, map-style.
        seed: of all random numbers.
        collate: makes a batch of a list of samples; None takes torch's default.
        augment: transforms a sample, with a generator for that sample.
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
        self._random = may_be_random(dataset)
        # Until it is seen to draw random numbers: seeding takes 10 us for each sample, as much as many a sample itself.
        self._quiet = self._random and not (collate or augment or has_getitems(dataset))
        self._columns = plain_columns(dataset) if collate is None and augment is None else None
        self._fetch = dataset.__getitems__ if has_getitems(dataset) else None  # type: ignore[attr-defined]

    def __getitem__(self, request: BatchRequest) -> Any:
        """Load, augment and collate a batch. The training process's generators are unchanged."""
        if self._columns is not None:
            index = torch.tensor(request.ids) if request.index is None else request.index
            return [column.index_select(0, index) for column in self._columns]
        if self._quiet:
            with DRAWS as draws:
                batch = default_collate([self._dataset[one] for one in request.ids])
            if not draws.found:
                return batch
            self._quiet = False  # for good; the batch is loaded again, with seeds
        with self._generators():
            return self._collated(request, self._augmented(request, self._samples(request)))

    def _generators(self) -> AbstractContextManager[None]:
        deterministic = not (self._random or self._augment or self._collate)
        return nullcontext() if deterministic or get_worker_info() else rng.preserved()

    def _samples(self, request: BatchRequest) -> list[Sample]:
        if self._fetch:
            self._seed_for("samples", request.epoch, request.position)
            return list(self._fetch(list(request.ids)))
        if not self._random:
            return [self._dataset[one] for one in request.ids]
        return [self._sample(request.epoch, one) for one in request.ids]

    def _sample(self, epoch: int, one: int) -> Sample:
        self._seed_for("draws", epoch, one)
        return self._dataset[one]

    def _augmented(self, request: BatchRequest, samples: list[Sample]) -> list[Sample]:
        if self._augment is None:
            return samples
        augmented = []
        for one, sample in zip(request.ids, samples, strict=True):
            self._seed_for("augment", request.epoch, one)
            generator = torch.Generator().manual_seed(derive_seed("sample", self._seed, request.epoch, one))
            augmented.append(self._augment(sample, generator))
        return augmented

    def _collated(self, request: BatchRequest, samples: list[Sample]) -> Any:
        if self._collate is None:
            return default_collate(samples)
        self._seed_for("collate", request.epoch, request.position)
        return self._collate(samples)

    def _seed_for(self, purpose: str, epoch: int, index: int) -> None:
        rng.seed_cpu(derive_seed(purpose, self._seed, epoch, index))


def no_collate(batch: Any) -> Any:
    """The ``collate_fn`` of a loader whose data set returns collated batches."""
    return batch


def may_be_random(dataset: object) -> bool:
    """Whether loading may draw random numbers: it may for all data sets but plain tensors."""
    if type(dataset) is Subset:
        return may_be_random(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return any(map(may_be_random, dataset.datasets))
    return type(dataset) is not TensorDataset


def plain_columns(dataset: object) -> Sequence[Tensor] | None:
    """The tensors of a plain ``TensorDataset`` whose batches can be taken from each at once; None if not.

    ``default_collate`` returns the same tensors in a list, but has to select each sample first.
    """
    if type(dataset) is not TensorDataset:
        return None
    plain = (
        type(one) is Tensor and one.device.type == "cpu" and one.layout == torch.strided for one in dataset.tensors
    )
    simple = all(plain) and all(one.is_contiguous() and not one.requires_grad for one in dataset.tensors)
    return dataset.tensors if simple else None


def has_getitems(dataset: object) -> bool:
    """Whether a data set loads several samples at once, by ``__getitems__``.

    A subset always has that method, but it is only a loop unless the underlying data set has one.
    """
    if type(dataset) is Subset:
        return has_getitems(dataset.dataset)
    return callable(getattr(dataset, "__getitems__", None))
