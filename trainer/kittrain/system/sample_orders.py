"""The order in which a rank's sampler gives samples, as its heartbeat has it, and whether those of two ranks differ.

Ranks divide a data set only if all of them have the same order, and each takes another part of it. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Final, Self

MOST: Final = 8  # different ones that are sent on
APART: Final = "do not divide the data: ranks train on some samples twice, and on others never"
LOOKED_AT: Final = 256  # indices of a part of a data set
_ORDER: Final = struct.Struct("<BQQqQ?Q")  # whether it is known, and its fields
SIZE: Final = _ORDER.size
Count = Annotated[int, lambda number: number >= 0]


@dataclass(frozen=True, kw_only=True)
class SampleOrder:
    """What a rank's ``DistributedSampler`` takes.

    Attributes:
        rank: whose it is.
        parts: in which the order is divided: ``num_replicas``.
        part: which of them it takes: the sampler's ``rank``.
        samples: in the data set.
        seed: of the order.
        shuffle: whether that is a random one.
        indices: a checksum of those of a part of a data set, as ``random_split`` gives it; 0: it is a whole one.
    """

    rank: Count
    parts: Count
    part: Count
    samples: Count
    seed: int
    shuffle: bool
    indices: Count = 0

    @classmethod
    def read(cls, page: bytes, offset: int, rank: int) -> Self | None:
        """Read it from the heartbeat of a rank; None: it has none yet."""
        known, parts, part, seed, samples, shuffle, indices = _ORDER.unpack_from(page, offset)
        if not known:
            return None
        return cls(rank=rank, parts=parts, part=part, samples=samples, seed=seed, shuffle=shuffle, indices=indices)

    @staticmethod
    def write(page: Any, offset: int, sampler: Any) -> None:
        """Write that of a ``DistributedSampler`` to a heartbeat.

        Raises:
            struct.error: a number is none, or too large.
        """
        numbers = sampler.num_replicas, sampler.rank, sampler.seed, len(sampler.dataset)
        _ORDER.pack_into(page, offset, 1, *numbers, bool(sampler.shuffle), _checksum(sampler.dataset))

    @property
    def kind(self) -> tuple[int, int, int, bool, bool, int]:
        """What all ranks that divide a data set have in common."""
        seed = self.seed if self.shuffle else 0
        return self.parts, self.samples, seed, self.shuffle, self.part == self.rank, self.indices


def _checksum(dataset: Any) -> int:
    """Of a few of the indices of a part of a data set."""
    try:
        indices = dataset.indices
        few = indices[:: max(1, len(indices) // LOOKED_AT)]
        return zlib.crc32(repr([int(one) for one in few]).encode()) or 1
    except Exception:  # noqa: BLE001 - another class may mean anything by that name, and raise anything
        return 0


def distinct(orders: Iterable[SampleOrder]) -> list[SampleOrder]:
    """The first rank's of each kind; few, however many ranks there are."""
    found: dict[Any, SampleOrder] = {}
    for order in sorted(orders, key=lambda one: one.rank):
        found.setdefault(order.kind, order)
    return [*found.values()][:MOST]


def difference(orders: Sequence[SampleOrder], world: int) -> str:
    """That ranks do not divide the data, in a sentence; empty if they do, or it cannot be told.

    Groups of ranks may have data sets of their own, and the ranks of a tensor-parallel group need the same samples:
    what is divided among fewer ranks than the job has is not judged.

    Args:
        orders: as ``distinct`` gives them, of all ranks.
        world: ranks of the job.
    """
    told = (_differ(*pair, world) for pair in combinations(orders, 2))
    found = next(filter(None, told), "")
    return found and f"{found}: they {APART}"


def _differ(one: SampleOrder, other: SampleOrder, world: int) -> str:
    ours, theirs = f"the DistributedSampler of rank {one.rank}", f"that of rank {other.rank}"
    if world not in {one.parts, other.parts}:
        return ""
    if one.samples != other.samples:
        return f"{ours} has {one.samples} samples, {theirs} {other.samples}"
    if one.indices != other.indices:
        return f"{ours} has other indices of the data set than {theirs}"
    seeds = (one.seed, other.seed) if one.shuffle else (0, 0)  # which has no part in an order that is not random
    arguments = (("num_replicas", one.parts, other.parts), ("shuffle", one.shuffle, other.shuffle), ("seed", *seeds))
    for name, this, that in arguments:
        if this != that:
            return f"{ours} has {name}={this}, {theirs} {name}={that}"
    return f"{ours} has rank={one.part}, {theirs} rank={other.part}" if one.part == other.part else ""
