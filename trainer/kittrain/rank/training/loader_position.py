"""Continues torch's DataLoader in the middle of a pass, without loading the batches before.

A loader's order comes from its sampler, which starts again from the random generators that it had at the start of the
pass; the indices before the position are dropped. Its numbers are those of a plain loop, with one exception: worker
processes are seeded for each batch, as what they draw would otherwise depend on the batches that they loaded before.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from kittrain.rank.training.sample_order import Place, Rest, ranks_of
from kittrain.rank.world import rng
from kittrain.rank.world.rng import RngState
from kittrain.rank.world.seeds import derive_seed
from kittrain.torch_private.ranks import has_workers_left, with_sampler


class SeededIndices:
    """Indices on the way to a worker process: arriving there seeds its generators, and leaves the plain indices."""

    def __init__(self, indices: Any, seed: int) -> None:
        self._arguments = indices, seed

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, self._arguments


def _arrive(indices: Any, seed: int) -> Any:
    rng.seed_cpu(seed)
    return indices


class Indices(Iterator[Any]):
    """A sampler's indices from a position on.

    Args:
        indices: all of them.
        skip: how many to drop.
        ahead: stands for the last ones of those: they had been drawn, but not taken.
        seed: of worker processes; None leaves the indices plain.
        depth: the most batches that worker processes are given ahead.
    """

    def __init__(
        self, indices: Iterator[Any], *, skip: int, ahead: Iterable[Any] = (), seed: int | None = None, depth: int = 0
    ) -> None:
        self._indices = indices
        self._skip = skip
        self._ahead = deque(ahead)
        self._seed = seed
        self._number = skip - len(self._ahead)  # of the last one that was given out
        self._drawn = deque[Any](maxlen=depth)

    def begin(self) -> None:
        """Move to the position, so that the sampler draws the order now, if it draws it with the first index."""
        while self._skip:
            next(self._indices, None)
            self._skip -= 1
        if not self._number and not self._ahead:
            self._ahead.extend(islice(self._indices, 1))

    def ahead(self, taken: int) -> list[Any]:
        """The indices that were given out after the first ``taken`` batches of the pass, for workers to load."""
        while len(self._drawn) > self._number - taken:
            self._drawn.popleft()
        return list(self._drawn)

    def __next__(self) -> Any:
        if self._skip:
            self.begin()
        found = self._ahead.popleft() if self._ahead else next(self._indices)
        self._number += 1
        if self._seed is None:
            return found
        self._drawn.append(found)
        return SeededIndices(found, derive_seed("batch", self._seed, self._number))


class PositionedSampler:
    """Stands for a loader's sampler.

    Attributes:
        source: of the indices.
        skip: indices to drop in the next iteration.
        ahead: see ``Indices``.
        seed: of worker processes.
        depth: the most batches that they are given ahead.
        current: the indices of the last iteration.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self.skip = 0
        self.ahead: Iterable[Any] = ()
        self.seed: int | None = None
        self.depth = 0
        self.current: Indices | None = None

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]  # if the loader has no length, nor has this

    def __iter__(self) -> Indices:
        self.current = Indices(iter(self.source), skip=self.skip, ahead=self.ahead, seed=self.seed, depth=self.depth)
        return self.current


class PositionedLoader:
    """A DataLoader of a map-style data set that can start within a pass; shares everything with the original.

    Args:
        loader: the original; it remains usable.

    Attributes:
        sampler: of single samples; None: only the loader's own sampler of batches knows them.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._source: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        self._sampler = PositionedSampler(self._source)
        self._loader = with_sampler(loader, self._sampler)
        self._sampler.depth = loader.num_workers * (loader.prefetch_factor or 0)
        self._batch, self.sampler = _single_samples(loader)
        self._start = 0

    @property
    def can_run(self) -> bool:
        """Whether the loader's workers stay for the next pass, which then draws no seed for them."""
        return bool(self._loader.persistent_workers and self._loader.num_workers)

    @property
    def running(self) -> bool:
        """Whether they are running."""
        return has_workers_left(self._loader)

    def batches(self) -> int | None:
        """Batches from the start of this part of the pass to its end, if known."""
        try:
            return len(self._part())
        except TypeError:
            return None

    def place(self, taken: int) -> Place | None:
        """Where this rank is after batches of this part of the pass; None: the samples are not known."""
        if self.sampler is None or self._batch is None:
            return None
        samples, length = taken * self._batch, _length(self.sampler)
        if length is not None:
            samples = min(samples, len(Rest(self.sampler, self._start)) if self._start else length)
        return Place(
            start=self._start,
            samples=samples,
            ranks=ranks_of(self.sampler),
            batch=self._batch,
            length=length,
            sampler=type(self.sampler).__name__,
        )

    def ahead(self, taken: int) -> list[Any]:
        """What workers were given to load after the first ``taken`` batches of this part of the pass."""
        return self._sampler.current.ahead(taken) if self._loader.num_workers and self._sampler.current else []

    def start(
        self,
        skip: int,
        start: RngState,
        *,
        rank: int,
        after: int = 0,
        ahead: Iterable[Any] = (),
    ) -> Iterator[Any]:
        """Begin a pass at a position.

        Args:
            skip: batches to leave out.
            start: the global generators' state at the start of the pass, which they are in now.
            rank: whose workers are seeded.
            after: samples of the order to leave out before; the others are divided among the ranks anew.
            ahead: batches of indices that follow those to leave out, which the sampler drew before the interruption.
        """
        ahead = list(ahead)
        self._start = after
        self._sampler.source = self._part()
        self._sampler.skip, self._sampler.ahead = skip + len(ahead), ahead
        if self._loader.num_workers:
            self._sampler.seed = derive_seed("workers", zlib.crc32(start["torch"].numpy()), rank)
        iterator = iter(self._loader)
        if (skip or after) and self._sampler.current:
            self._sampler.current.begin()
        return iterator

    def rewind(self) -> None:
        """The next pass is a whole one, by the original."""
        self._start = 0

    def run(self) -> None:
        """Start workers that stay, without drawing any number, as if a pass had ended."""
        self._sampler.source, self._sampler.skip, self._sampler.ahead = (), 0, ()
        with undrawn(self._loader):
            iter(self._loader)

    def _part(self) -> Any:
        """The sampler of this part of the pass, of batches if the loader has one of those."""
        if not self._start or self.sampler is None:
            return self._source
        rest = Rest(self.sampler, self._start)
        single = self._source is self.sampler
        return rest if single else BatchSampler(rest, self._source.batch_size, self._source.drop_last)


@contextmanager
def undrawn(loader: object) -> Iterator[None]:
    """Context manager that undoes what is drawn in it from a loader's generators and the global ones."""
    before = [(one, one.get_state()) for one in generators(loader)]
    with rng.preserved():
        yield
    for one, state in before:
        one.set_state(state)


def is_map_style(loader: object) -> bool:
    """Whether a loader is torch's, with a sampler."""
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def samplers(loader: object) -> list[Any]:
    """A loader's samplers, from the outside in."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = [batch_sampler, getattr(batch_sampler, "sampler", None), getattr(loader, "sampler", None)]
    return list({id(one): one for one in found if one is not None}.values())


def generators(loader: object) -> list[torch.Generator]:
    """The generators of a loader and its samplers."""
    found = [getattr(one, "generator", None) for one in (loader, *samplers(loader))]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _single_samples(loader: DataLoader[Any]) -> tuple[int | None, Any]:
    """The number of samples in a batch, and their sampler; None if the loader's sampler makes the batches itself."""
    batches = loader.batch_sampler
    if batches is None:
        return (None, None) if isinstance(loader.sampler, BatchSampler) else (1, loader.sampler)
    return (batches.batch_size, batches.sampler) if type(batches) is BatchSampler else (None, None)


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except TypeError:
        return None
