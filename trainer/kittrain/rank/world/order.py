"""The order of the samples: one order for all ranks, one cursor as the whole state, and no padding.

The order of an epoch is a permutation that depends only on the seed and the epoch. A step takes its next G samples (the
last step takes the rest), which are divided among the ranks. So a run can stop at any step and resume with another
number of ranks: each sample of each epoch is still used exactly once, and the global batches stay the same.

Why: decision 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from kittrain.rank.world.seeds import derive_seed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, order=True)
class Cursor:
    """How far the data have been consumed: ``position`` samples of an epoch's order, on any number of ranks."""

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
        """The number of samples."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of all samples of all epochs, cut into global batches.

    Attributes:
        samples: size of the data set, at least 1.
        batch: samples in a step over all ranks, at least 1.
        seed: of the permutations.
        dataset: the data set's fingerprint; empty if unknown.
    """

    samples: int
    batch: int
    seed: int = 0
    dataset: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it says which samples a step takes; ``STEPS`` does not."""
        return (self.samples, self.batch) != (STEPS.samples, STEPS.batch)

    @cached_property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch, including a short last one."""
        return -(-self.samples // self.batch)

    @property
    def fingerprint(self) -> str:
        """Equal for orders between which a cursor can be moved, as far as is known."""
        known = (self.dataset,) if self.dataset else ()
        return f"{derive_seed('order', self.samples, self.batch, self.seed, *known):016x}"

    def spans(self, cursor: Cursor, epochs: int) -> Iterator[Span]:
        """The global batches from a cursor to the end of the last epoch."""
        epoch, start = cursor.epoch, cursor.position
        while epoch < epochs:
            stop = min(start + self.batch, self.samples)
            yield Span(epoch, start, stop)
            epoch, start = (epoch, stop) if stop < self.samples else (epoch + 1, 0)

    def after(self, span: Span) -> Cursor:
        """The cursor after a global batch."""
        return Cursor(span.epoch, span.stop) if span.stop < self.samples else Cursor(span.epoch + 1)

    def step(self, cursor: Cursor) -> int:
        """The number of optimizer steps before a cursor."""
        return cursor.epoch * self.steps_per_epoch + -(-cursor.position // self.batch)

    def ids(self, span: Span) -> list[int]:
        """The ids of a span's samples, in order."""
        ids: list[int] = self.index(span.epoch, span.start, span.stop).tolist()
        return ids

    def index(self, epoch: int, start: int, stop: int) -> Tensor:
        """The same of positions of an epoch's order, as a tensor (stop - start,) that shares the order's memory."""
        return _permutation(self.seed, epoch, self.samples)[start:stop]


STEPS: Final = Order(samples=1 << 53, batch=1)  # of a run whose data have no known order: one epoch of steps


def rank_share(items: Sequence[Any], rank: int, size: int, *, minimum: int = 1) -> Sequence[Any]:
    """A rank's contiguous share of items that are divided among all ranks.

    Lengths differ by at most 1, and rank 0's is never shorter. If there are fewer than ``minimum`` items per rank, the
    last ranks get none, and each of the others gets at least ``minimum``, if there are that many.
    """
    sharing = max(1, min(size, len(items) // minimum))
    each, rest = divmod(len(items), sharing)
    start = rank * each + min(rank, rest)
    return items[start : start + each + (rank < rest)] if rank < sharing else items[:0]


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, samples: int) -> Tensor:
    import torch  # noqa: PLC0415  not needed to read ledgers, and slow to import

    generator = torch.Generator().manual_seed(derive_seed("epoch", seed, epoch))
    return torch.randperm(samples, generator=generator)
