"""The ledger: which samples the committed history of a run counted, as a hash chain that can be audited.

Each snapshot carries the whole ledger up to its step. Steps of one epoch, taken by one generation of ranks, are one
entry, so a ledger grows with restarts and epochs, not with steps.

A history may have gone on under another order of the data. Then it has segments: each holds in its own order, and the
chain binds where one ends and what order the next one has. An epoch that was broken off there begins anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from kittrain.world.order import Cursor, Order

Ledger = tuple["Entry", ...]


class LedgerError(Exception):
    """A ledger does not count each sample once, or was tampered with.

    Attributes:
        entry: index of the entry where that shows.
    """

    def __init__(self, entry: int, problem: str) -> None:
        super().__init__(f"entry {entry}: {problem}")
        self.entry = entry


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Steps ``first_step`` to ``last_step`` (from 1 on) took positions ``start`` to ``stop`` of the epoch's order.

    Attributes:
        world_size: ranks that took them.
        chain: SHA-256 over the chain of the entry before and this entry.
    """

    generation: int
    epoch: int
    first_step: int
    last_step: int
    start: int
    stop: int
    world_size: int
    chain: str = ""

    def chained(self, before: str) -> Entry:
        """This entry, bound to the one before."""
        facts = asdict(self) | {"chain": before}
        return replace(self, chain=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest())


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a history whose order of the data is not that of the part after it.

    Attributes:
        entries: of the ledger, from its beginning to the end of this segment.
        samples: size of the data set.
        batch: samples in a step, over all ranks.
        seed: of the order.
        data: its fingerprint, which tells data sets of one size apart, too.
    """

    entries: int
    samples: int
    batch: int
    seed: int
    data: str

    @property
    def order(self) -> Order:
        """What its cursors mean."""
        return Order(samples=self.samples, batch=self.batch, seed=self.seed)


Segments = Sequence[Segment]


def begin(cursor: Cursor) -> Cursor:
    """Where a new order begins, when the one before has reached a cursor: whole epochs count on."""
    return Cursor(cursor.epoch)


def extend(
    ledger: Ledger,
    order: Order,
    generation: int,
    start: Cursor,
    stop: Cursor,
    *,
    world_size: int,
    earlier: Segments = (),
) -> Ledger:
    """The ledger once a generation, of so many ranks, has also taken all steps between two cursors.

    Args:
        ledger: so far; the segments before end with it, or in it.
        order: that both cursors mean something in.
        generation: of the ranks.
        start: where the ledger ends; behind a change of the order, where the new one begins.
        stop: where it is to end.
        world_size: how many ranks there are.
        earlier: the segments before, under other orders.
    """
    while start < stop:
        same_epoch = start.epoch == stop.epoch
        end = stop if same_epoch else Cursor(start.epoch + 1)
        entry = Entry(
            generation=generation,
            epoch=start.epoch,
            first_step=order.step(start) + 1,
            last_step=order.step(end),
            start=start.position,
            stop=stop.position if same_epoch else order.samples,
            world_size=world_size,
        )
        if ledger and (ledger[-1].generation, ledger[-1].epoch) == (generation, start.epoch):
            entry = replace(entry, first_step=ledger[-1].first_step, start=ledger[-1].start)
            ledger = ledger[:-1]
        ledger = (*ledger, entry.chained(_before(ledger, len(ledger), order, earlier)))
        start = end
    return ledger


def audit(ledger: Sequence[Entry], order: Order, earlier: Segments = ()) -> Cursor:
    """Prove that positions 0 to N of every epoch were counted exactly once, the last epoch's up to the result.

    With segments before it is proved of each of them in its order, and of the last one in ``order``.

    Raises:
        LedgerError: they were not.
    """
    reached, first = Cursor(), 0
    for number, segment in enumerate(earlier):
        if not first <= segment.entries <= len(ledger):
            raise LedgerError(first, f"a segment ends at entry {segment.entries} of {len(ledger)}")
        reached = begin(_audit(ledger[: segment.entries], first, reached, segment.order, earlier[:number]))
        first = segment.entries
    return _audit(ledger, first, reached, order, earlier)


def _audit(ledger: Sequence[Entry], first: int, reached: Cursor, order: Order, earlier: Segments) -> Cursor:
    """Prove it of the last segment, from an entry and a cursor on; gives where it ends."""
    generation = ledger[first - 1].generation + 1 if first else 0  # only another start takes another order
    for number, entry in enumerate(ledger[first:], first):
        expected = (reached.epoch, reached.position, order.step(reached) + 1)
        told = (entry.epoch, entry.start, entry.first_step)
        if entry.chained(_before(ledger, number, order, earlier)) != entry:
            raise LedgerError(number, "the hash chain is broken")
        if told != expected:
            raise LedgerError(number, f"epoch, position and step begin at {told}, but the history reached {expected}")
        if not entry.start < entry.stop <= order.samples:
            raise LedgerError(number, f"positions {entry.start} to {entry.stop} of {order.samples} samples")
        if entry.generation < generation:
            raise LedgerError(number, f"generation {entry.generation} after generation {generation}")
        reached = Cursor(entry.epoch, entry.stop) if entry.stop < order.samples else Cursor(entry.epoch + 1)
        if entry.last_step != order.step(reached):
            raise LedgerError(number, f"ends at step {entry.last_step}, not at {order.step(reached)}")
        generation = entry.generation
    return reached


def parting(earlier: Ledger, later: Ledger) -> int | None:
    """The first entry of a history that its continuation does not hold; the last one may have grown since."""
    for number, entry in enumerate(earlier):
        if number >= len(later):
            return number
        grown = number == len(earlier) - 1 and _begin(entry) == _begin(later[number])
        if entry != later[number] and not (grown and entry.stop <= later[number].stop):
            return number
    return None


def _before(ledger: Sequence[Entry], number: int, order: Order, earlier: Segments) -> str:
    """What an entry is bound to: the chain up to it and, where a new order begins, that order."""
    chain = ledger[number - 1].chain if number else ""
    begins = bool(earlier) and number == earlier[-1].entries
    return f"{chain}/{order.samples}/{order.batch}/{order.seed}" if begins else chain


def _begin(entry: Entry) -> tuple[int, int, int, int]:
    return entry.generation, entry.epoch, entry.first_step, entry.start
