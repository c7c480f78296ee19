"""Nodes killed by SIGKILL, again and again: the run ends, and every sample was counted exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from trainer.data import Cursor, Order, Span
from trainer.ledger import Entry, audit
from trainer.snapshot import read_manifest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

EPOCHS, SAMPLES, BATCH = 6, 512, 16
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
STEPS = EPOCHS * ORDER.steps_per_epoch
WORKLOAD = f"-m trainer.workloads.toy {EPOCHS} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()
Recorded = dict[tuple[int, int], list[int]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_kills_and_every_sample_is_counted_exactly_once(kit: Kit) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    records = kit.folder / "records"
    observed = [*WORKLOAD, "--step-time", "0.05", "--record", str(records)]
    kit.run("submit", "--name", "kills", "--nodes", "3", "--snapshot-every", "10", *observed)
    victims = [0, *chance.choices(range(3), k=4)]
    chance.shuffle(victims)
    for number, victim in enumerate(victims):
        step = STEPS * (number + 1) // 7 + chance.randrange(10)
        kit.until("kills", partial(reached, step))
        os.killpg(kit.agent("kills", victim), signal.SIGKILL)
        kit.until("kills", partial(lost, number + 1))
    kit.run("wait", "kills")

    ledger = committed(kit.snapshots("kills"))
    assert audit(ledger, ORDER) == Cursor(EPOCHS, 0)
    assert len({entry.generation for entry in ledger}) > 1, "the kills left no trace in the history"
    assert counted(ledger, recorded(records)) == {epoch: Counter(range(SAMPLES)) for epoch in range(EPOCHS)}
    for name, value in undisturbed(kit.folder).items():
        torch.testing.assert_close(weights(kit.snapshots("kills"))[name], value, rtol=1e-5, atol=1e-6)


def reached(step: int, job: dict[str, Any]) -> bool:
    """Whether all ranks train, and have come to ``step``."""
    return bool(job["phase"] == "Running" and (job["progress"].get("step") or 0) >= step)


def lost(nodes: int, job: dict[str, Any]) -> bool:
    """Whether that many nodes have been started again."""
    return bool(job["restarts"] >= nodes)


def committed(snapshots: Path) -> tuple[Entry, ...]:
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


def counted(ledger: tuple[Entry, ...], ids: Recorded) -> dict[int, Counter[int]]:
    """How often each sample of each epoch was learned from in a step that was committed."""
    counts: dict[int, Counter[int]] = {}
    for entry in ledger:
        for step in range(entry.first_step, entry.last_step + 1):
            learned = ids[entry.generation, step]
            start = (step - 1) % ORDER.steps_per_epoch * BATCH
            assert sorted(learned) == sorted(ORDER.ids(Span(entry.epoch, start, start + BATCH))), (
                "not that step's batch"
            )
            counts.setdefault(entry.epoch, Counter()).update(learned)
    return counts


def weights(snapshots: Path) -> dict[str, torch.Tensor]:
    """The final model's file, as plain torch loads it."""
    loaded: dict[str, torch.Tensor] = torch.load(snapshots / "model.pt", weights_only=True)
    return loaded


def undisturbed(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of the same run in one process that nobody disturbs."""
    alone = folder / "alone"
    alone.mkdir()
    environ = os.environ | {"KIT_SNAPSHOT_DIR": str(alone)}
    subprocess.run([sys.executable, *WORKLOAD], env=environ, check=True, capture_output=True)
    return weights(alone)
