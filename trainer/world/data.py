"""Which samples each step takes: one order for all ranks, one cursor as the whole state, and no padding.

The order of an epoch is a permutation that follows from the seed and the epoch alone. A step takes the next G samples
of it (the last step what is left), and the ranks share them out. So a run can stop at any step and go on with another
number of ranks: each sample of each epoch is still taken exactly once, and the global batches stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from trainer.world.distributed import World
from trainer.world.rng import derive

Sample = Any
Augment = Callable[[Sample, torch.Generator], Sample]
Key = tuple[int, int]  # epoch and sample id


@dataclass(frozen=True, order=True)
class Cursor:
    """How far the data have been consumed: ``position`` samples of the epoch's order. Independent of the world."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class Span:
    """A global batch: positions ``start`` to ``stop`` of an epoch's order."""

    epoch: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many samples it holds."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of all samples of all epochs, cut into global batches.

    Attributes:
        samples: size of the data set, at least 1.
        batch: samples in a step, over all ranks, at least 1.
        seed: another seed is another order.
    """

    samples: int
    batch: int
    seed: int = 0

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch, the short last one included."""
        return -(-self.samples // self.batch)

    @property
    def fingerprint(self) -> str:
        """Equal for orders that a cursor means the same in."""
        return f"{derive('order', self.samples, self.batch, self.seed):016x}"

    def spans(self, cursor: Cursor, epochs: int) -> Iterator[Span]:
        """The global batches from a cursor to the end of the last epoch."""
        while cursor.epoch < epochs:
            span = Span(cursor.epoch, cursor.position, min(cursor.position + self.batch, self.samples))
            yield span
            cursor = self.after(span)

    def after(self, span: Span) -> Cursor:
        """The cursor once a global batch has been consumed."""
        return Cursor(span.epoch, span.stop) if span.stop < self.samples else Cursor(span.epoch + 1)

    def step(self, cursor: Cursor) -> int:
        """How many optimizer steps lie before a cursor."""
        return cursor.epoch * self.steps_per_epoch + -(-cursor.position // self.batch)

    def ids(self, span: Span) -> list[int]:
        """The ids of a span's samples, in order."""
        ids: list[int] = _permutation(self.seed, span.epoch, self.samples)[span.start : span.stop].tolist()
        return ids


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, samples: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(derive("epoch", seed, epoch))
    return torch.randperm(samples, generator=generator)


def portion(items: Sequence[Any], rank: int, size: int) -> Sequence[Any]:
    """A rank's contiguous part of what all ranks share out; lengths differ by at most 1, rank 0's is never shorter."""
    each, left = divmod(len(items), size)
    start = rank * each + min(rank, left)
    return items[start : start + each + (rank < left)]


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
        dataset: has ``__len__`` and ``__getitem__``.
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
        self.order = Order(samples=samples, batch=batch, seed=seed)
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

    def __getitem__(self, key: Key) -> Sample:
        epoch, sample_id = key
        sample = self._dataset[sample_id]
        if self._augment is None:
            return sample
        return self._augment(sample, torch.Generator().manual_seed(derive("sample", self._seed, epoch, sample_id)))


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
