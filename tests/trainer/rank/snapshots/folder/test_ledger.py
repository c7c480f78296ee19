"""The ledger proves that each sample counted once, through any restarts, and rejects everything else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.snapshots.folder.ledger import (
    Entry,
    Ledger,
    LedgerError,
    Segment,
    audit,
    extend,
    first_divergence,
    new_order_start,
)
from kittrain.rank.world.order import Cursor, Order

ORDER = Order(samples=10, batch=4)  # 3 steps an epoch


def written(order: Order, commits: list[tuple[int, int]], epochs: int) -> Ledger:
    """A history of commits: (steps since the previous one, whether a new generation resumed there)."""
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
    """As a forger would do who knows how the hash chain is computed."""
    ledger: Ledger = ()
    for entry in entries:
        ledger = (*ledger, entry.chained(ledger[-1].chain if ledger else ""))
    return ledger


@pytest.mark.parametrize("index", range(len(HISTORY)))
@pytest.mark.parametrize("field", ["generation", "epoch", "first_step", "last_step", "start", "stop", "world_size"])
def test_every_changed_number_is_found(index: int, field: str) -> None:
    entries = list(HISTORY)
    entries[index] = replace(entries[index], **{field: getattr(entries[index], field) + 1})
    with pytest.raises(LedgerError, match=f"entry {index}: the hash chain is broken"):
        audit(entries, ORDER)
    if field in {"generation", "world_size"}:  # only the hash chain protects these
        return
    with pytest.raises(LedgerError, match="entry"):
        audit(rechained(entries), ORDER)


@pytest.mark.parametrize("index", range(len(HISTORY) - 1))
def test_a_missing_or_duplicate_entry_is_found(index: int) -> None:
    for entries in ([*HISTORY[:index], *HISTORY[index + 1 :]], [*HISTORY[: index + 1], *HISTORY[index:]]):
        with pytest.raises(LedgerError, match="the hash chain is broken"):
            audit(entries, ORDER)
        with pytest.raises(LedgerError, match="but the history reached"):
            audit(rechained(entries), ORDER)


def test_an_older_generation_cannot_follow_a_newer_one() -> None:
    ledger = extend((), ORDER, 2, Cursor(), Cursor(1), world_size=2)
    ledger = extend(ledger, ORDER, 1, Cursor(1), Cursor(2), world_size=2)
    with pytest.raises(LedgerError, match="generation 1 after generation 2"):
        audit(ledger, ORDER)


def test_an_entry_without_samples_is_rejected() -> None:
    """It would claim steps for a generation that took none."""
    ledger = extend((), ORDER, 1, Cursor(), Cursor(0, 8), world_size=2)
    idle = Entry(generation=2, epoch=0, first_step=3, last_step=2, start=8, stop=8, world_size=2)
    with pytest.raises(LedgerError, match="entry 1: positions 8 to 8 of 10 samples"):
        audit(rechained([*ledger, idle]), ORDER)


def test_first_divergence_of_two_histories() -> None:
    short, long = (extend((), ORDER, 1, Cursor(), Cursor(0, stop), world_size=2) for stop in (4, 8))
    assert first_divergence(short, long) is None
    assert first_divergence(long, long) is None
    assert first_divergence(long, short) == 0, "it is shorter"
    assert first_divergence(long, ()) == 0
    later = extend(long, ORDER, 2, Cursor(0, 8), Cursor(1), world_size=2)
    assert first_divergence(long, later) is None
    assert first_divergence(short, later) is None
    assert first_divergence(later, long) == 1
    assert first_divergence(extend((), ORDER, 3, Cursor(), Cursor(0, 4), world_size=2), later) == 0


ORDERS = st.builds(Order, samples=st.integers(1, 20), batch=st.integers(1, 9), seed=st.integers(0, 3))


def segment(order: Order, entries: int) -> Segment:
    return Segment(entries=entries, samples=order.samples, batch=order.batch, seed=order.seed, data=order.fingerprint)


def segmented(parts: list[tuple[Order, int]]) -> tuple[Ledger, list[Segment], Cursor]:
    """A history of so many steps under each order, the last one's segment included."""
    ledger: Ledger = ()
    segments: list[Segment] = []
    at = Cursor()
    for generation, (order, steps) in enumerate(parts, 1):
        at = new_order_start(at)
        cursors = [at, *(order.after(span) for span in order.spans(at, at.epoch + steps))]
        stop = cursors[steps]
        ledger = extend(ledger, order, generation, at, stop, world_size=2, earlier=segments)
        segments.append(segment(order, len(ledger)))
        at = stop
    return ledger, segments, at


@given(parts=st.lists(st.tuples(ORDERS, st.integers(1, 30)), min_size=1, max_size=4))
def test_a_history_under_several_orders_is_proved_of_each(parts: list[tuple[Order, int]]) -> None:
    ledger, segments, reached = segmented(parts)
    order, _ = parts[-1]
    assert audit(ledger, order, segments[:-1]) == reached
    for (one, _), before, here in zip(parts, [0, *(one.entries for one in segments)], segments, strict=False):
        for epoch in {entry.epoch for entry in ledger[before : here.entries]}:
            counted = [
                position
                for entry in ledger[before : here.entries]
                if entry.epoch == epoch
                for position in range(entry.start, entry.stop)
            ]
            assert counted == list(range(len(counted)))
            assert len(counted) <= one.samples


BRANCHED, SEGMENTS, _ = segmented([(ORDER, 4), (Order(samples=12, batch=5, seed=1), 4)])


@pytest.mark.parametrize(
    ("order", "earlier", "message"),
    [
        (Order(samples=12, batch=5, seed=2), SEGMENTS[:1], "the hash chain is broken"),
        (Order(samples=12, batch=4, seed=1), SEGMENTS[:1], "the hash chain is broken"),
        (SEGMENTS[1].order, [], "the hash chain is broken|but the history reached|positions|ends at step"),
        (SEGMENTS[1].order, [replace(SEGMENTS[0], entries=1)], "."),
        (SEGMENTS[1].order, [replace(SEGMENTS[0], entries=9)], "a segment ends at entry 9 of 4"),
        (SEGMENTS[1].order, [replace(SEGMENTS[0], batch=5)], "."),
    ],
)
def test_the_hash_chain_covers_changes_of_the_order(order: Order, earlier: list[Segment], message: str) -> None:
    assert audit(BRANCHED, SEGMENTS[1].order, SEGMENTS[:1]) == Cursor(2, 5)
    with pytest.raises(LedgerError, match=message):
        audit(BRANCHED, order, earlier)


def test_the_order_changes_only_with_a_new_generation() -> None:
    ledger = extend((), ORDER, 1, Cursor(), Cursor(0, 4), world_size=2)
    segments = [segment(ORDER, 1)]
    other = Order(samples=10, batch=5)
    same = extend(ledger, other, 1, Cursor(), Cursor(0, 5), world_size=2, earlier=segments)
    with pytest.raises(LedgerError):
        audit(same, other, segments)
