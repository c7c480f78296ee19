"""A data set in the order of all ranks: each rank's part of each step, loaded, collated, augmented and moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from kittrain.world.distributed import World
from kittrain.world.identity import identity
from kittrain.world.loading import Augment, Collate, Loading, Part, Sample, as_it_is
from kittrain.world.order import Cursor, Order, Span, portion
from kittrain.world.seeds import derive


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
            at once; a text in ``fingerprint`` tells it from others of its length. What it draws from the global
            generators of torch (on CPUs), Python and numpy depends on seed, epoch and sample id only; in
            ``__getitems__`` and ``collate`` on seed, epoch and where a rank's part of the step begins.
        batch: samples in a step, over all ranks.
        seed: of the order, and of all that is drawn while loading.
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
        collate: Collate | None = None,
        augment: Augment | None = None,
    ) -> None:
        samples = len(dataset)  # type: ignore[arg-type]  # torch's Dataset does not promise a length
        if samples < 1 or batch < 1:
            raise ValueError(f"{samples} samples in batches of {batch}: both need to be at least 1")
        self.order = Order(samples=samples, batch=batch, seed=seed, contents=identity(dataset))
        self._loading = Loading(dataset, seed=seed, collate=collate, augment=augment)
        self._workers = workers

    def batches(self, cursor: Cursor, epochs: int, world: World, *, least: int = 1) -> Iterator[Batch]:
        """This rank's part of each step, from a cursor to the end of the last epoch.

        Args:
            cursor: where to begin.
            epochs: where to end.
            world: whose ranks share out each step.
            least: samples that a rank with any has, as far as that can be (``portion``).
        """
        spans = self.order.spans(cursor, epochs)
        start = derive("workers", self.order.seed, cursor.epoch, cursor.position, world.rank)
        loader = DataLoader(
            self._loading,
            batch_size=None,  # it is asked for whole batches
            sampler=(self._part(span, world, least) for span in spans),
            num_workers=self._workers,
            collate_fn=as_it_is,
            pin_memory=world.device.type == "cuda",
            generator=torch.Generator().manual_seed(start),  # else it would draw from, and so move, the global one
        )
        for span, samples in zip(self.order.spans(cursor, epochs), loader, strict=True):
            ids = list(portion(self.order.ids(span), world.rank, world.size, least=least))
            yield Batch(span=span, ids=ids, weight=world.size * len(ids) / span.size, samples=samples)

    def _part(self, span: Span, world: World, least: int) -> Part:
        """What a rank loads; one without samples loads the step's first."""
        ids = self.order.ids(span)
        mine = portion(range(len(ids)), world.rank, world.size, least=least) or range(1)
        return Part(span.epoch, span.start + mine[0], ids[mine[0] : mine[-1] + 1])
