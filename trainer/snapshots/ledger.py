"""The ledger: which samples the committed history of a run counted, as a hash chain that can be audited.

Each snapshot carries the whole ledger up to its step. Steps of one epoch, taken by one generation of ranks, are one
entry, so a ledger grows with restarts and epochs, not with steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from trainer.world.order import Cursor, Order

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


def extend(ledger: Ledger, order: Order, generation: int, start: Cursor, stop: Cursor, *, world_size: int) -> Ledger:
    """The ledger once a generation, of so many ranks, has also taken all steps between two cursors."""
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
        ledger = (*ledger, entry.chained(_chain(ledger)))
        start = end
    return ledger


def audit(ledger: Sequence[Entry], order: Order) -> Cursor:
    """Prove that positions 0 to N of every epoch were counted exactly once, the last epoch's up to the result.

    Raises:
        LedgerError: they were not.
    """
    reached, generation, chain = Cursor(), 0, ""
    for number, entry in enumerate(ledger):
        expected = (reached.epoch, reached.position, order.step(reached) + 1)
        told = (entry.epoch, entry.start, entry.first_step)
        if entry.chained(chain) != entry:
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
        generation, chain = entry.generation, entry.chain
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


def _chain(ledger: Ledger) -> str:
    return ledger[-1].chain if ledger else ""


def _begin(entry: Entry) -> tuple[int, int, int, int]:
    return entry.generation, entry.epoch, entry.first_step, entry.start
