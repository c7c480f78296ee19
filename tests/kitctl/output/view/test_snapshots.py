"""Text output for snapshots and audits."""

from __future__ import annotations

from typing import Any

from kitctl.output.view import audit as audit_view
from kitctl.output.view import snapshots as view
from kitjob.history import Audit, EarlierData, LedgerEntry, Proof, SnapshotDetails, SnapshotFacts, Tensor

NOW = 1000.0


def facts(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "name": "step-00000120-g0002",
        "condition": "whole",
        "reason": "",
        "step": 120,
        "generation": 2,
    }
    known |= {"size": 1536 << 20, "epoch": 3, "run": "0123456789abcdef", "world_size": 4, "created": NOW - 65}
    return known | changes


UNKNOWN = {"epoch": None, "run": None, "world_size": None, "created": None}
ENTRIES = tuple(
    LedgerEntry(
        generation=generation, epoch=epoch, first_step=first, last_step=last, start=0, stop=stop, world_size=size
    )
    for generation, epoch, first, last, stop, size in ((1, 0, 1, 4, 64, 2), (2, 1, 5, 8, 64, 1), (3, 2, 9, 10, 32, 2))
)


def test_a_list_shows_each_snapshot_and_its_problem() -> None:
    damaged = SnapshotFacts(**facts(**UNKNOWN, step=100, condition="damaged", reason="shard-00001.bin is missing"))
    broken = SnapshotFacts(**facts(not_finite="the loss is nan"))
    assert view.table([broken, SnapshotFacts(**facts()), damaged], NOW) == [
        "STEP   EPOCH   GENERATION   RUN        RANKS   AGE     SIZE      CONDITION",
        "120    3       2            01234567   4       1m05s   1.5 GiB   whole: not finite (the loss is nan)",
        "120    3       2            01234567   4       1m05s   1.5 GiB   whole",
        "100    -       2            -          -       -       1.5 GiB   damaged: shard-00001.bin is missing",
    ]
    assert view.table([SnapshotFacts(**facts())], NOW, wide=True)[1].endswith("whole       step-00000120-g0002")
    assert "0123456789abcdef" in view.table([SnapshotFacts(**facts())], NOW, wide=True)[1]


def test_details_show_tensors_and_history() -> None:
    more: dict[str, Any] = {
        "job": "digits",
        "position": 32,
        "samples": 64,
        "batch": 16,
        "seed": 7,
        "torch": "2.9",
        "parent": "",
    }
    more["not_finite"] = "the loss is nan"
    tensors = (
        Tensor(name="fc.weight", shape=(10, 64), dtype="float32", size=2560),
        Tensor(name="t", shape=(), dtype="int64", size=8),
    )
    shown = "\n".join(view.page(SnapshotDetails(**facts(), **more, digest="d1", ledger=ENTRIES, tensors=tensors), NOW))
    assert "120, in epoch 3 after 32 of 64 samples" in shown
    assert "generation 2, 4 ranks, torch 2.9" in shown
    assert "Resumed from   the start" in shown
    assert "Not finite     the loss is nan" in shown
    assert "fc.weight   10x64    float32   2.5 KiB" in shown
    assert "t           scalar   int64     8 B" in shown
    assert "1       2            2       5-8     0-64        1" in shown


LINE = (
    "proved: 2 epochs of 64 samples and 32 of epoch 3, each counted exactly once: 160 samples in 10 steps, by 3 "
    "generations (2 restarts; 2 -> 1 -> 2 ranks), in 3 entries; from step-00000010-g0003; 1 more agree"
)


def printed(audit: Audit) -> list[str]:
    return audit_view.page(audit, wide=False)


def proof(**changes: Any) -> Proof:
    known: dict[str, Any] = {
        "snapshot": "step-00000010-g0003",
        "epochs": 2,
        "position": 32,
        "samples": 64,
        "counted": 160,
        "steps": 10,
    }
    return Proof(**known | {"generations": 3, "broken": "", "entry": None, "ledger": ENTRIES} | changes)


def test_a_proof_is_one_line() -> None:
    audit = Audit(proofs=(proof(), proof()), unusable=())
    assert audit.holds
    assert printed(audit) == [LINE]
    assert audit_view.page(audit, wide=True)[1:] == view.ledger(ENTRIES)


def test_each_data_order_has_its_own_line() -> None:
    part = EarlierData(samples=48, batch=8, seed=1, before=0, epochs=1, position=16, counted=64, steps=8)
    newest = proof(before=1, epochs=1, counted=96, steps=6, earlier=(part,))
    earlier, present = printed(Audit(proofs=(newest,), unusable=()))
    assert earlier == (
        "proved: 1 epoch of 48 samples in batches of 8, seed 1, and 16 of epoch 2, which then started over: 64 "
        "samples, each counted exactly once, in 8 steps; then training continued in a new order of the data"
    )
    assert present.startswith(
        "proved: 1 epoch of 64 samples and 32 of epoch 3, each counted exactly once: 96 samples in 6"
    )


def test_a_broken_chain_is_shown_with_its_step() -> None:
    audit = Audit(proofs=(proof(broken="entry 1: the hash chain is broken", entry=1), proof()), unusable=())
    assert not audit.holds
    first, _, zero, one, *_ = printed(audit)
    assert first == "broken in step-00000010-g0003: entry 1: the hash chain is broken"
    assert "here" not in zero
    assert one.startswith("1 <- here")


def test_a_snapshot_without_a_proof_does_not_affect_the_others() -> None:
    damaged = SnapshotFacts(**facts(**UNKNOWN, condition="damaged", reason="manifest.json is missing"))
    audit = Audit(proofs=(proof(),), unusable=(damaged,))
    assert not audit.holds
    assert printed(audit)[0] == "unusable: step-00000120-g0002: manifest.json is missing"
    assert printed(audit)[1].startswith("proved: ")


def test_without_a_snapshot_nothing_is_proved() -> None:
    none = Audit(proofs=(), unusable=())
    assert printed(none) == ["nothing to prove: there are no snapshots, which hold the record of the samples"]
    assert not none.holds
    assert audit_view.fix(none).startswith("ask again after the first snapshot of Training or Run; ")


def test_without_the_order_of_the_data_only_steps_are_printed() -> None:
    own = proof(epochs=0, position=0, samples=0, counted=0)
    audit = Audit(proofs=(own, own), unusable=())
    assert not audit.holds
    (line,) = printed(audit)
    assert line.startswith("nothing to prove: which samples a step took is not recorded, since the script takes its")
    assert "; 10 steps in one unbroken history, by 3 generations (2 restarts; 2 -> 1 -> 2 ranks), in 3 ent" in line
    assert audit_view.fix(audit).startswith("take the batches from kittrain.Data")


def test_a_history_that_began_without_it_is_not_proved_as_a_whole() -> None:
    part = EarlierData(samples=0, batch=0, seed=0, before=0, epochs=0, position=0, counted=0, steps=8)
    audit = Audit(proofs=(proof(earlier=(part,)),), unusable=())
    assert not audit.holds
    earlier, present = printed(audit)
    assert earlier.startswith("not recorded: the samples of 8 steps, since the script")
    assert present.startswith("proved: 2 epochs")
    assert "submit --from-scratch" in audit_view.fix(audit)
