"""The ledger: whatever the restarts, it proves that each sample counted once; and it proves nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.snapshots.ledger import Entry, Ledger, LedgerError, audit, extend
from trainer.world.order import Cursor, Order

ORDER = Order(samples=10, batch=4)  # 3 steps an epoch


def written(order: Order, commits: list[tuple[int, int]], epochs: int) -> Ledger:
    """A history of commits: (steps since the one before, whether a new generation went on from there)."""
    cursors = [Cursor(), *(order.after(span) for span in order.spans(Cursor(), epochs))]
    ledger: Ledger = ()
    at, generation = 0, 1
    for steps, restarts in commits:
        generation += restarts
        to = min(at + steps, len(cursors) - 1)
        ledger = extend(ledger, order, generation, cursors[at], cursors[to], world_size=2)
        at = to
    return ledger


@given(
    samples=st.integers(1, 30),
    batch=st.integers(1, 12),
    epochs=st.integers(1, 4),
    commits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=12),
)
def test_every_history_is_proved_and_compressed(
    samples: int, batch: int, epochs: int, commits: list[tuple[int, int]]
) -> None:
    order = Order(samples=samples, batch=batch)
    ledger = written(order, commits, epochs)
    steps = min(sum(steps for steps, _ in commits), epochs * order.steps_per_epoch)
    assert order.step(audit(ledger, order)) == steps
    assert len({(entry.generation, entry.epoch) for entry in ledger}) == len(ledger)
    for epoch in range(epochs):
        counted = [p for entry in ledger if entry.epoch == epoch for p in range(entry.start, entry.stop)]
        assert counted == list(range(len(counted)))


HISTORY = written(ORDER, [(2, 0), (2, 1), (3, 1), (1, 0)], 3)


def rechained(entries: list[Entry]) -> Ledger:
    """What a forger would do, who knows how chains are made."""
    ledger: Ledger = ()
    for entry in entries:
        ledger = (*ledger, entry.chained(ledger[-1].chain if ledger else ""))
    return ledger


@pytest.mark.parametrize("index", range(len(HISTORY)))
@pytest.mark.parametrize("field", ["generation", "epoch", "first_step", "last_step", "start", "stop"])
def test_every_changed_number_is_found(index: int, field: str) -> None:
    entries = list(HISTORY)
    entries[index] = replace(entries[index], **{field: getattr(entries[index], field) + 1})
    with pytest.raises(LedgerError, match=f"entry {index}: the hash chain is broken"):
        audit(entries, ORDER)
    if field == "generation":  # a number that only the chain vouches for
        return
    with pytest.raises(LedgerError, match="entry"):
        audit(rechained(entries), ORDER)


@pytest.mark.parametrize("index", range(len(HISTORY) - 1))
def test_what_is_missing_or_counted_twice_is_found(index: int) -> None:
    for entries in ([*HISTORY[:index], *HISTORY[index + 1 :]], [*HISTORY[: index + 1], *HISTORY[index:]]):
        with pytest.raises(LedgerError, match="the hash chain is broken"):
            audit(entries, ORDER)
        with pytest.raises(LedgerError, match="but the history reached"):
            audit(rechained(entries), ORDER)


def test_an_older_generation_cannot_follow() -> None:
    ledger = extend((), ORDER, 2, Cursor(), Cursor(1), world_size=2)
    ledger = extend(ledger, ORDER, 1, Cursor(1), Cursor(2), world_size=2)
    with pytest.raises(LedgerError, match="generation 1 after generation 2"):
        audit(ledger, ORDER)
