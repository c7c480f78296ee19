"""A data set in the order of all ranks: each rank's part of each step, loaded, collated, augmented and moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from trainer.world.distributed import World
from trainer.world.identity import identity
from trainer.world.order import Cursor, Order, Span, portion
from trainer.world.seeds import derive

Sample = Any
Augment = Callable[[Sample, torch.Generator], Sample]
Key = tuple[int, int]  # epoch and sample id


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A rank's part of a step.

    Attributes:
        span: the global batch.
        ids: this rank's samples; may be none.
        weight: factor for the loss's mean over ``samples``, so that DDP's mean over ranks is the global batch's mean.
        samples: what the collate function made; a rank without samples gets one that weighs nothing.
    """

    span: Span
    ids: list[int]
    weight: float
    samples: Any


class Data:
    """A map-style data set in a reproducible order.

    Args:
        dataset: has ``__len__`` and ``__getitem__``, and may have ``__getitems__``, which gives the samples of many ids
            at once; a text in ``fingerprint`` tells it from others of its length.
        batch: samples in a step, over all ranks.
        seed: of the order, and of augmentation.
        workers: processes that load samples; 0 loads them in this one.
        collate: makes a batch of a list of samples; None takes torch's default.
        augment: changes a sample with a generator that depends on seed, epoch and sample id only.

    Raises:
        ValueError: there are no samples, or the batch is not at least 1.
    """

    def __init__(
        self,
        dataset: Dataset[Sample],
        *,
        batch: int,
        seed: int = 0,
        workers: int = 0,
        collate: Callable[[list[Sample]], Any] | None = None,
        augment: Augment | None = None,
    ) -> None:
        samples = len(dataset)  # type: ignore[arg-type]  # torch's Dataset does not promise a length
        if samples < 1 or batch < 1:
            raise ValueError(f"{samples} samples in batches of {batch}: both need to be at least 1")
        self.order = Order(samples=samples, batch=batch, seed=seed, contents=identity(dataset))
        self._source = _Keyed(dataset, seed, augment)
        self._workers = workers
        self._collate = collate

    def batches(self, cursor: Cursor, epochs: int, world: World) -> Iterator[Batch]:
        """This rank's part of each step, from a cursor to the end of the last epoch."""
        loader = DataLoader(
            self._source,
            batch_sampler=self._keys(cursor, epochs, world),
            num_workers=self._workers,
            collate_fn=self._collate,
            pin_memory=world.device.type == "cuda",
            generator=torch.Generator(),  # else it would draw from, and so move, the global one
        )
        for span, samples in zip(self.order.spans(cursor, epochs), loader, strict=True):
            ids = list(portion(self.order.ids(span), world.rank, world.size))
            yield Batch(span=span, ids=ids, weight=world.size * len(ids) / span.size, samples=samples)

    def _keys(self, cursor: Cursor, epochs: int, world: World) -> Iterator[list[Key]]:
        for span in self.order.spans(cursor, epochs):
            ids = self.order.ids(span)
            yield [(span.epoch, sample) for sample in portion(ids, world.rank, world.size) or ids[:1]]


class _Keyed(Dataset[Sample]):
    """The user's data set, asked by epoch and sample id."""

    def __init__(self, dataset: Dataset[Sample], seed: int, augment: Augment | None) -> None:
        self._dataset = dataset
        self._seed = seed
        self._augment = augment

    def __getitems__(self, keys: list[Key]) -> list[Sample]:
        """All samples of a batch at once, as torch's loader asks for them: a data set may have a quick way, too."""
        ids = [sample_id for _, sample_id in keys]
        fetch = getattr(self._dataset, "__getitems__", None)
        samples = fetch(ids) if fetch else [self._dataset[sample_id] for sample_id in ids]
        return [self._augmented(key, sample) for key, sample in zip(keys, samples, strict=True)]

    def _augmented(self, key: Key, sample: Sample) -> Sample:
        if self._augment is None:
            return sample
        return self._augment(sample, torch.Generator().manual_seed(derive("sample", self._seed, *key)))


def to_device(samples: Any, device: torch.device) -> Any:
    """A batch with its tensors moved; tuples, lists and dicts of them keep their shape."""
    match samples:
        case torch.Tensor():
            return samples.to(device, non_blocking=True)
        case dict():
            return {key: to_device(value, device) for key, value in samples.items()}
        case tuple() | list():
            moved = [to_device(value, device) for value in samples]
            return type(samples)(*moved) if hasattr(samples, "_fields") else type(samples)(moved)
        case _:
            return samples
