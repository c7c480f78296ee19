"""The order of a sampler's samples over all ranks, and what is left of it for any number of ranks. Pure.

torch's ``DistributedSampler`` has one order for all ranks, of which rank r takes samples r, r + W, ... So after c
samples on each of W ranks, the first c * W samples of the order are taken, and the others can be divided among any
ranks. A sampler of any other kind is a rank's own: its order is the rank's.

Why: decision 51.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, TypeGuard

from torch.utils.data import DistributedSampler, RandomSampler, WeightedRandomSampler


class PositionError(RuntimeError):
    """A pass cannot be continued where the snapshot was taken; names the loader, why, and the fix."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank is in its sampler's order.

    Attributes:
        start: samples that had been taken, by all ranks of the order, when it was last divided among them.
        samples: that this rank has taken since.
        ranks: among which the order is divided; 1: each rank has its own.
        batch: samples in a batch.
        length: samples of this rank in a whole pass; None: unknown.
        sampler: name of its class.
    """

    start: int = 0
    samples: int = 0
    ranks: int = 1
    batch: int
    length: int | None = None
    sampler: str = ""

    @property
    def taken(self) -> int:
        """Samples of the order that all of its ranks have taken."""
        return self.start + self.samples * self.ranks


class Rest:
    """A rank's samples after the first ``start`` ones of the order, which are divided among the ranks anew.

    Args:
        sampler: of the whole order.
        start: samples before.
    """

    def __init__(self, sampler: Any, start: int) -> None:
        self._sampler = sampler
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        one = self._sampler
        if not is_divided(one):
            return islice(iter(one), self._start, None)
        return iter(divide(whole_order(one), self._start, ranks=one.num_replicas, rank=one.rank, drop=one.drop_last))

    def __len__(self) -> int:
        one = self._sampler
        if not is_divided(one):
            return max(0, len(one) - self._start)
        left = max(0, len(one.dataset) - self._start)  # type: ignore[arg-type]  # torch's has no __len__
        return left // one.num_replicas if one.drop_last else -(-left // one.num_replicas)


def divide(order: Sequence[Any], start: int, *, ranks: int, rank: int, drop: bool) -> list[Any]:
    """A rank's part of what is left of an order, as ``DistributedSampler`` divides a whole one.

    Args:
        order: of all ranks.
        start: samples before.
        ranks: all of them get equally many.
        rank: this one.
        drop: drop the last samples for that; else the first ones of the order are repeated.
    """
    left = list(order[start:])
    if drop:
        left = left[: len(left) // ranks * ranks]
    elif left:
        left += islice(cycle(order), -len(left) % ranks)
    return left[rank::ranks]


def whole_order(sampler: DistributedSampler[Any]) -> list[Any]:
    """The order of all ranks in the sampler's epoch, without padding."""
    whole = copy.copy(sampler)
    whole.num_replicas, whole.rank = 1, 0
    whole.num_samples = whole.total_size = len(sampler.dataset)  # type: ignore[arg-type]  # torch's has no __len__
    return list(whole)


def is_divided(sampler: object) -> TypeGuard[DistributedSampler[Any]]:
    """Whether one order is divided among the ranks, in torch's way: a subclass may do it in another."""
    return isinstance(sampler, DistributedSampler) and type(sampler).__iter__ is DistributedSampler.__iter__


def ranks_of(sampler: object) -> int:
    """Among how many ranks a sampler's order is divided; 1: each rank has its own."""
    return sampler.num_replicas if is_divided(sampler) else 1


def draws_again(sampler: object) -> bool:
    """Whether a sampler draws samples with replacement, so that a pass has no particular ones."""
    return isinstance(sampler, WeightedRandomSampler | RandomSampler) and sampler.replacement


def how_to_resize() -> str:
    """What to do about a loader that cannot be continued by another number of ranks."""
    return (
        "scale back until this epoch has ended; or take the batches from Data, or from a DataLoader with torch's "
        "DistributedSampler; or pass resize='share' to Run.batches() to continue after about the same share of the pass"
    )
