"""A job's snapshots: while it runs, when they are damaged, and after it is deleted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import torch

from kittrain.rank.snapshots.folder.ledger import Ledger
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from tests.trainer.runs import flip, resign

if TYPE_CHECKING:
    from tests.local.conftest import Kit

EPOCHS, SAMPLES, BATCH = 6, 512, 16
STEPS = EPOCHS * SAMPLES // BATCH
TOY = ("-m", "kittrain.workloads.toy", str(EPOCHS), "--samples", str(SAMPLES), "--batch_size", str(BATCH))


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_snapshots_are_managed_and_their_history_audited_and_tampering_is_found(kit: Kit) -> None:
    kit.run("submit", "--name", "job", "--nodes", "1:2", "--snapshot-every", "20", *TOY, "--step-time", "0.1")
    kit.until("job", lambda job: job["worldSize"] == 2 and (job["progress"]["step"] or 0) > 20)
    kit.run("suspend", "job")
    kit.run("scale", "job", "--nodes", "1")
    kit.run("resume", "job")
    kit.run("wait", "job")

    proof = kit.run("audit", "job")
    assert f"proved: {EPOCHS} epochs of {SAMPLES} samples, each counted exactly once" in proof
    assert re.search(rf"{EPOCHS * SAMPLES} samples in {STEPS} steps, by [23] generations \([12] restart", proof)
    listed = json.loads(kit.run("snapshots", "verify", "job", "-o", "json"))["items"]
    assert [(one["step"], one["epoch"]) for one in listed] == [(STEPS, EPOCHS), (180, 6), (160, 5)]
    assert {one["condition"] for one in listed} == {"verified"}
    shown = kit.run("snapshots", "show", "job")
    assert "1x20    float32" in shown
    assert ", 1 rank, torch" in shown

    weights = kit.folder / "weights.pt"
    kit.run("snapshots", "export", "job", "-o", str(weights))
    ours, theirs = (torch.load(path, weights_only=True) for path in (weights, kit.snapshots("job") / "model.pt"))
    assert ours.keys() == theirs.keys() == {"weight", "bias"}
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    kit.run("delete", "job")
    newest, _, oldest = (kit.snapshots("job") / one["name"] for one in listed)
    flip(oldest / "shard-00000.bin")
    assert f"1 of 3 cannot be used: {oldest.name}" in kit.run("snapshots", "verify", "job", exit_code=1)
    resign(newest, ledger=without(read_manifest(newest).ledger, 2))
    output = kit.run("audit", "job", exit_code=1)
    assert f"broken in {newest.name}: entry 2: epoch, position and step start at" in output
    assert "2 <- here" in output
    prune = ("snapshots", "prune", "job", "--keep", "1", "--damaged")
    assert "delete these 2? confirmation needed, but stdin is not a terminal" in kit.run(*prune, exit_code=2)
    assert len([*kit.snapshots("job").glob("step-*")]) == 3
    kit.run(*prune, "-y")
    assert [path.name for path in kit.snapshots("job").glob("step-*")] == [newest.name]


def without(ledger: Ledger, number: int) -> Ledger:
    """The ledger without one entry, and with a recomputed hash chain."""
    done: Ledger = ()
    for entry in ledger[:number] + ledger[number + 1 :]:
        done = (*done, entry.chained(done[-1].chain if done else ""))
    return done


def test_a_job_without_snapshots_is_reported(kit: Kit) -> None:
    output = kit.run("snapshots", "list", "nothing", exit_code=102)
    assert "no job 'nothing' on this machine, and no snapshots of one" in output
