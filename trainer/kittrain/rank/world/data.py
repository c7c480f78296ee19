"""A data set in the order of all ranks: loads, augments and collates each rank's part of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from kittrain.rank.world.batch_loading import Augment, BatchDataset, BatchRequest, Collate, Sample, no_collate
from kittrain.rank.world.dataset_fingerprint import dataset_fingerprint
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor, Order, Span, rank_share
from kittrain.rank.world.seeds import derive_seed


@dataclass(kw_only=True)
class Batch:
    """A rank's part of a step.

    Attributes:
        span: the global batch.
        ids: this rank's samples; may be empty.
        weight: factor for the loss's mean over ``samples``, so that DDP's mean over ranks is the global batch's mean.
        samples: as the collate function returned them; a rank without samples gets one, with weight 0.
    """

    span: Span
    ids: list[int]
    weight: float
    samples: Any

    def take(self) -> Any:
        """The samples, which the batch then no longer holds: their memory is free before the next ones are loaded."""
        samples, self.samples = self.samples, None
        return samples


class Data:
    """A map-style data set in a reproducible order.

    Args:
        dataset: has ``__len__`` and ``__getitem__``, and may have ``__getitems__``, which returns the samples of many
            ids at once; a str attribute ``fingerprint`` distinguishes it from others of its length. Its random numbers
            from the global generators of torch (on CPUs), Python and numpy depend only on seed, epoch and sample id; in
            ``__getitems__`` and ``collate`` they depend on seed, epoch and the position of the rank's first sample.
        batch: samples in a step, over all ranks.
        seed: of the order, and of random numbers drawn while loading.
        workers: processes that load samples; 0 loads them in this one.
        collate: makes a batch of a list of samples; None is torch's default.
        augment: transforms a sample, with a generator that depends only on seed, epoch and sample id.

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
        collate: Collate | None = None,
        augment: Augment | None = None,
    ) -> None:
        samples = len(dataset)  # type: ignore[arg-type]  # torch's Dataset has no __len__
        if samples < 1 or batch < 1:
            raise ValueError(f"{samples} samples in batches of {batch}: both need to be at least 1")
        self.order = Order(samples=samples, batch=batch, seed=seed, dataset=dataset_fingerprint(dataset))
        self._batches = BatchDataset(dataset, seed=seed, collate=collate, augment=augment)
        self._workers = workers

    def batches(self, cursor: Cursor, epochs: int, world: World, *, minimum: int = 1) -> Iterator[Batch]:
        """This rank's part of each step, from a cursor to the end of the last epoch.

        Args:
            cursor: where to start.
            epochs: the number of epochs to end after.
            world: its ranks divide each step among them.
            minimum: fewest samples of a rank that has any (``rank_share``).
        """
        planned: deque[tuple[Span, list[int]]] = deque()
        requests = self._requests(cursor, epochs, world, minimum, planned)
        loaded = iter(self._loaded(requests, cursor, world))
        samples: list[Any] = []  # no name refers to them: they are to be freed before the next ones are loaded
        while True:
            samples.extend(islice(loaded, 1))
            if not samples:
                return
            span, ids = planned.popleft()
            yield Batch(span=span, ids=ids, weight=world.size * len(ids) / span.size, samples=samples.pop())

    def _loaded(self, requests: Iterator[BatchRequest], cursor: Cursor, world: World) -> Iterable[Any]:
        """The requested batches, loaded by workers or in this process."""
        pin = world.device.type == "cuda"
        if not self._workers and not pin:
            return map(self._batches.__getitem__, requests)
        seed = derive_seed("workers", self.order.seed, cursor.epoch, cursor.position, world.rank)
        return DataLoader(
            self._batches,
            batch_size=None,  # the data set returns whole batches
            sampler=requests,
            num_workers=self._workers,
            collate_fn=no_collate,
            pin_memory=pin,
            generator=torch.Generator().manual_seed(seed),  # else it would use the global one
        )

    def _requests(
        self, cursor: Cursor, epochs: int, world: World, minimum: int, planned: deque[tuple[Span, list[int]]]
    ) -> Iterator[BatchRequest]:
        """What a rank loads: its samples, or the step's first one if it has none. Adds its part of each to a queue."""
        for span in self.order.spans(cursor, epochs):
            share = rank_share(range(span.start, span.stop), world.rank, world.size, minimum=minimum)
            loaded = share or range(span.start, span.start + 1)
            index = self.order.index(span.epoch, loaded[0], loaded[-1] + 1)
            ids: list[int] = index.tolist()
            planned.append((span, ids if share else []))
            yield BatchRequest(span.epoch, loaded[0], ids, None if self._workers else index)
