"""Continues torch's DataLoader in the middle of a pass, without loading the batches before.

A loader's order comes from its sampler, which starts again from the random generators that it had at the start of the
pass; the indices before the position are dropped. Its numbers are those of a plain loop, with one exception: worker
processes are seeded for each batch, as what they draw would otherwise depend on the batches that they loaded before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from kittrain.torch_private.ranks import with_sampler
from kittrain.world import rng
from kittrain.world.rng import RngState
from kittrain.world.seeds import derive_seed


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
        seed: of worker processes; None leaves the indices plain.
    """

    def __init__(self, indices: Iterator[Any], skip: int, seed: int | None) -> None:
        self._indices = indices
        self._skip = skip
        self._seed = seed
        self._number = 0

    def advance(self) -> None:
        """Drop the indices before the position, if that has not been done yet."""
        while self._number < self._skip:
            next(self._indices, None)
            self._number += 1

    def __next__(self) -> Any:
        self.advance()
        found = next(self._indices)
        self._number += 1
        return found if self._seed is None else SeededIndices(found, derive_seed("batch", self._seed, self._number))


class PositionedSampler:
    """Stands for a loader's sampler: the next iteration starts at ``skip``.

    Attributes:
        skip: indices to drop.
        seed: of worker processes.
        current: the indices of the last iteration.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self.skip = 0
        self.seed: int | None = None
        self.current: Indices | None = None

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # if the loader has no length, nor has this

    def __iter__(self) -> Indices:
        self.current = Indices(iter(self._sampler), self.skip, self.seed)
        return self.current


class PositionedLoader:
    """A DataLoader of a map-style data set that can start within a pass; shares everything with the original.

    Args:
        loader: the original; it remains usable.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        self._sampler = PositionedSampler(sampler)
        self._loader = with_sampler(loader, self._sampler)

    def start(self, skip: int, start: RngState, *, rank: int) -> Iterator[Any]:
        """Begin a pass at a position.

        Args:
            skip: batches to leave out.
            start: the global generators' state at the start of the pass, which they are in now.
            rank: whose workers are seeded.
        """
        self._sampler.skip = skip
        if self._loader.num_workers:
            self._sampler.seed = derive_seed("workers", zlib.crc32(start["torch"].numpy()), rank)
        iterator = iter(self._loader)
        if skip and self._sampler.current:
            self._sampler.current.advance()
        return iterator


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
