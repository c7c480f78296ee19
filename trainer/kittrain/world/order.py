"""Which samples each step takes: one order for all ranks, one cursor as the whole state, and no padding.

The order of an epoch is a permutation that follows from the seed and the epoch alone. A step takes the next G samples
of it (the last step what is left), and the ranks share them out. So a run can stop at any step and go on with another
number of ranks: each sample of each epoch is still taken exactly once, and the global batches stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kittrain.world.seeds import derive

if TYPE_CHECKING:
    from torch import Tensor


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
        contents: what tells the data set from another one of its size; empty where that is not known.
    """

    samples: int
    batch: int
    seed: int = 0
    contents: str = ""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch, the short last one included."""
        return -(-self.samples // self.batch)

    @property
    def fingerprint(self) -> str:
        """Equal for orders that a cursor means the same in, as far as is known."""
        known = (self.contents,) if self.contents else ()
        return f"{derive('order', self.samples, self.batch, self.seed, *known):016x}"

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


def portion(items: Sequence[Any], rank: int, size: int, *, least: int = 1) -> Sequence[Any]:
    """A rank's contiguous part of what all ranks share out.

    Lengths differ by at most 1, and rank 0's is never shorter. Where there are fewer than ``least`` items for each
    rank, the last ranks get none, and the others at least that many, if there are.
    """
    sharing = max(1, min(size, len(items) // least))
    each, left = divmod(len(items), sharing)
    start = rank * each + min(rank, left)
    return items[start : start + each + (rank < left)] if rank < sharing else items[:0]


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, samples: int) -> Tensor:
    import torch  # noqa: PLC0415  whoever asks for no samples, such as an auditor of ledgers, need not wait for it

    generator = torch.Generator().manual_seed(derive("epoch", seed, epoch))
    return torch.randperm(samples, generator=generator)
