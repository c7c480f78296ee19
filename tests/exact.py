"""Checks that a run is exact: its ledger matches the samples used, and its result that of an undisturbed run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from kittrain.rank.snapshots.folder.ledger import Ledger, audit
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.world.order import Cursor, Order, Span
from tests.trainer.worlds import Ranks

TOLERANCE: Final = 1e-5  # relative, of weights and loss: sums over other numbers of ranks round otherwise

RecordedIds = dict[tuple[int, int], list[int]]  # sample ids by generation and step


def assert_each_sample_counts_once(snapshots: Path, records: Path, order: Order, *, epochs: int) -> Ledger:
    """Compare a run's ledger, from ``snapshots``, with its ranks' ``records`` (``toy --record``); return the ledger.

    Several generations of ranks may have taken the same step. Only the committed one counts, and its samples must be
    those that the order assigns to that step.
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


def recorded(folder: Path) -> RecordedIds:
    """The sample ids that each generation's ranks recorded for each step."""
    ids: RecordedIds = {}
    for path in folder.glob("*.jsonl"):
        lines = path.read_text().splitlines()
        for line in lines[:-1] + [
            last for last in lines[-1:] if last.endswith("}")
        ]:  # a kill may truncate the last one
            record = json.loads(line)
            ids.setdefault((record["generation"], record["step"]), []).extend(record["ids"])
    return ids


def counted(ledger: Ledger, ids: RecordedIds, order: Order) -> dict[int, Counter[int]]:
    """How often each sample of each epoch was used in a committed step."""
    counts: dict[int, Counter[int]] = {}
    for entry in ledger:
        for step in range(entry.first_step, entry.last_step + 1):
            used = ids[entry.generation, step]
            start = (step - 1) % order.steps_per_epoch * order.batch
            expected = order.ids(Span(entry.epoch, start, start + order.batch))
            assert sorted(used) == sorted(expected), f"step {step} of generation {entry.generation}: another batch"
            counts.setdefault(entry.epoch, Counter()).update(used)
    return counts


def undisturbed(workload: Sequence[str], folder: Path, *, ranks: int = 1, **env: str) -> Path:
    """Run ``toy`` without faults; returns its snapshot folder, with its records in ``record``."""
    option, module, *words = workload
    assert option == "-m"
    whole = folder / "undisturbed"
    whole.mkdir()
    shared = {"KIT_SNAPSHOT_DIR": str(whole), "OMP_NUM_THREADS": "1", **env}
    world = Ranks(whole, module, *words, "--record", str(whole / "record"), **shared)
    assert world.run(ranks) == [0] * ranks, world.log.read_text()
    return whole


def assert_ends_as_undisturbed(snapshots: Path, records: Path, whole: Path, *, tolerance: float = TOLERANCE) -> None:
    """The last loss and the final weights equal those of the undisturbed run; bitwise, with a tolerance of 0.

    From three ranks on, that includes the order of sums, if the undisturbed run had as many.
    """
    last, expected = last_loss(records), last_loss(whole / "record")
    assert abs(last - expected) <= tolerance * abs(expected), f"the last loss is {last} instead of {expected}"
    found = weights(snapshots)
    for name, value in weights(whole).items():
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance / 10)


def last_loss(records: Path) -> float:
    """The loss of the last step."""
    lines = [json.loads(line) for path in records.glob("*.jsonl") for line in path.read_text().splitlines()[-1:]]
    last = max(lines, key=lambda record: (record["step"], record["generation"]))
    return float(last["loss"])


def weights(snapshots: Path) -> dict[str, torch.Tensor]:
    """The final model's file, as plain torch loads it."""
    loaded: dict[str, torch.Tensor] = torch.load(snapshots / "model.pt", weights_only=True)
    return loaded
