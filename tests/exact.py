"""Whether a run counted each sample exactly once: its ledger, held against what its ranks really learned from."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from trainer.data import Cursor, Order, Span
from trainer.ledger import Ledger, audit
from trainer.snapshot import read_manifest

Recorded = dict[tuple[int, int], list[int]]  # sample ids by generation and step


def assert_each_sample_counts_once(snapshots: Path, records: Path, order: Order, *, epochs: int) -> Ledger:
    """Check the run that left ``snapshots``, whose ranks wrote ``records`` (``toy --record``); its committed history.

    A step may have been taken several times, by one generation of ranks after another: what counts is the one that was
    committed, and its samples must be those that the order has for it.
    """
    ledger = committed(snapshots)
    assert audit(ledger, order) == Cursor(epochs, 0)
    assert counted(ledger, recorded(records), order) == {
        epoch: Counter(range(order.samples)) for epoch in range(epochs)
    }
    return ledger


def committed(snapshots: Path) -> Ledger:
    """The ledger of the newest snapshot."""
    newest = max(snapshots.glob("step-*"), key=lambda path: path.name)
    return read_manifest(newest).ledger


def recorded(folder: Path) -> Recorded:
    """What each generation's ranks really learned from, step by step, in their own words."""
    ids: Recorded = {}
    for path in folder.glob("*.jsonl"):
        lines = path.read_text().splitlines()
        for line in lines[:-1] + [last for last in lines[-1:] if last.endswith("}")]:  # the last may be cut by a kill
            told = json.loads(line)
            ids.setdefault((told["generation"], told["step"]), []).extend(told["ids"])
    return ids


def counted(ledger: Ledger, ids: Recorded, order: Order) -> dict[int, Counter[int]]:
    """How often each sample of each epoch was learned from in a step that was committed."""
    counts: dict[int, Counter[int]] = {}
    for entry in ledger:
        for step in range(entry.first_step, entry.last_step + 1):
            learned = ids[entry.generation, step]
            start = (step - 1) % order.steps_per_epoch * order.batch
            expected = order.ids(Span(entry.epoch, start, start + order.batch))
            assert sorted(learned) == sorted(expected), f"step {step} of generation {entry.generation}: another batch"
            counts.setdefault(entry.epoch, Counter()).update(learned)
    return counts
