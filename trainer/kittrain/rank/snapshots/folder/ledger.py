"""The ledger: which samples the committed history of a run counted, as a hash chain that can be audited.

Each snapshot carries the whole ledger up to its step. The steps of one epoch by one generation of ranks are one
entry, so a ledger grows with restarts and epochs, not with steps.

A history may continue under another order of the data. Then it has segments: each is valid in its own order, and the
hash chain covers where one ends and what order the next one has. The epoch that was interrupted there starts over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from kittrain.rank.world.order import Cursor, Order

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
        chain: SHA-256 over the chain of the previous entry and this entry.
    """

    generation: int
    epoch: int
    first_step: int
    last_step: int
    start: int
    stop: int
    world_size: int
    chain: str = ""

    def chained(self, previous: str) -> Entry:
        """This entry with its hash, which covers the previous one."""
        facts = asdict(self) | {"chain": previous}
        return replace(self, chain=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest())


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a history with one order of the data.

    Attributes:
        entries: of the ledger, from its beginning to the end of this segment.
        samples: size of the data set.
        batch: samples in a step, over all ranks.
        seed: of the order.
        data: the order's fingerprint, which also distinguishes data sets of the same size.
    """

    entries: int
    samples: int
    batch: int
    seed: int
    data: str

    @property
    def order(self) -> Order:
        """The order that its cursors refer to."""
        return Order(samples=self.samples, batch=self.batch, seed=self.seed)


Segments = Sequence[Segment]


def new_order_start(cursor: Cursor) -> Cursor:
    """Where a new order starts after a cursor of the old one: complete epochs count, an interrupted one starts over."""
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
    """Add all steps between two cursors, taken by one generation.

    Args:
        ledger: so far; the earlier segments end within it or at its end.
        order: of the data, for both cursors.
        generation: of the ranks.
        start: where the ledger ends; after a change of the order, where the new one starts.
        stop: where the result ends.
        world_size: number of ranks.
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
        ledger = (*ledger, entry.chained(_previous(ledger, len(ledger), order, earlier)))
        start = end
    return ledger


def audit(ledger: Sequence[Entry], order: Order, earlier: Segments = ()) -> Cursor:
    """Prove that positions 0 to N of every epoch were counted exactly once, the last epoch's up to the result.

    Each earlier segment is proved in its own order, and the last one in ``order``.

    Raises:
        LedgerError: they were not.
    """
    reached, first = Cursor(), 0
    for number, segment in enumerate(earlier):
        if not first <= segment.entries <= len(ledger):
            raise LedgerError(first, f"a segment ends at entry {segment.entries} of {len(ledger)}")
        end = _audit(ledger[: segment.entries], first, reached, segment.order, earlier[:number])
        reached, first = new_order_start(end), segment.entries
    return _audit(ledger, first, reached, order, earlier)


def _audit(ledger: Sequence[Entry], first: int, reached: Cursor, order: Order, earlier: Segments) -> Cursor:
    """Audit the last segment, from an entry and a cursor on; returns where it ends."""
    generation = ledger[first - 1].generation + 1 if first else 0  # the order changes only with a new start
    for number, entry in enumerate(ledger[first:], first):
        expected = (reached.epoch, reached.position, order.step(reached) + 1)
        actual = (entry.epoch, entry.start, entry.first_step)
        if entry.chained(_previous(ledger, number, order, earlier)) != entry:
            raise LedgerError(number, "the hash chain is broken")
        if actual != expected:
            raise LedgerError(number, f"epoch, position and step start at {actual}, but the history reached {expected}")
        if not entry.start < entry.stop <= order.samples:
            raise LedgerError(number, f"positions {entry.start} to {entry.stop} of {order.samples} samples")
        if entry.generation < generation:
            raise LedgerError(number, f"generation {entry.generation} after generation {generation}")
        reached = Cursor(entry.epoch, entry.stop) if entry.stop < order.samples else Cursor(entry.epoch + 1)
        if entry.last_step != order.step(reached):
            raise LedgerError(number, f"ends at step {entry.last_step}, not at {order.step(reached)}")
        generation = entry.generation
    return reached


def first_divergence(earlier: Ledger, later: Ledger) -> int | None:
    """Index of the first entry of a history that a later one does not continue; None if it continues all of them.

    The last entry of the earlier history may have grown.
    """
    for number, entry in enumerate(earlier):
        if number >= len(later):
            return number
        grown = number == len(earlier) - 1 and _start(entry) == _start(later[number])
        if entry != later[number] and not (grown and entry.stop <= later[number].stop):
            return number
    return None


def _previous(ledger: Sequence[Entry], number: int, order: Order, earlier: Segments) -> str:
    """The value that an entry's hash covers: the chain before it and, at the start of a new order, that order."""
    chain = ledger[number - 1].chain if number else ""
    new_order = bool(earlier) and number == earlier[-1].entries
    return f"{chain}/{order.samples}/{order.batch}/{order.seed}" if new_order else chain


def _start(entry: Entry) -> tuple[int, int, int, int]:
    return entry.generation, entry.epoch, entry.first_step, entry.start
