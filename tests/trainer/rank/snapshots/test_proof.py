"""The proof that each sample was counted once: it holds for a run's snapshots, and locates tampering."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kitjob.history import Proof
from kittrain.rank.snapshots.folder.ledger import Ledger, extend
from kittrain.rank.snapshots.folder.snapshot import Manifest, read_manifest
from kittrain.rank.snapshots.proof import prove
from kittrain.rank.world.order import STEPS, Cursor
from tests.trainer import runs, saved


def cursor(step: int) -> Cursor:
    return [Cursor(), *(saved.ORDER.after(span) for span in saved.ORDER.spans(Cursor(), 10))][step]


def history(*steps: int) -> Ledger:
    """One generation per step in the list, resuming from the step before."""
    ledger: Ledger = ()
    for generation, (start, stop) in enumerate(zip((0, *steps), steps, strict=False), 1):
        ledger = extend(ledger, saved.ORDER, generation, cursor(start), cursor(stop), world_size=generation)
    return ledger


def alone(manifest: Manifest) -> Proof:
    return prove(manifest, {manifest.name: manifest})


def rechained(ledger: Ledger) -> Ledger:
    """As a forger would leave it who knows how the chain is computed."""
    done: Ledger = ()
    for entry in ledger:
        done = (*done, entry.chained(done[-1].chain if done else ""))
    return done


def test_a_history_over_three_generations_holds_and_is_counted() -> None:
    proof = alone(saved.manifest(8, generation=3, ledger=history(2, 4, 8)))
    assert (proof.broken, proof.entry) == ("", None)
    assert (proof.epochs, proof.position, proof.counted, proof.steps, proof.generations) == (2, 8, 28, 8, 3)


def test_a_deleted_entry_shows_where_it_was() -> None:
    whole = history(2, 4, 8)
    for number in range(len(whole) - 1):
        cut = rechained(whole[:number] + whole[number + 1 :])
        proof = alone(saved.manifest(8, generation=3, ledger=cut))
        assert proof.entry == number
        assert "but the history reached" in proof.broken


def test_a_history_that_lost_its_end_does_not_reach_its_snapshot() -> None:
    proof = alone(saved.manifest(8, generation=3, ledger=history(2, 4, 8)[:-1]))
    assert "the ledger ends at" in proof.broken
    assert proof.entry is None


def test_a_changed_entry_breaks_the_chain() -> None:
    first, *rest = history(2, 8)
    proof = alone(saved.manifest(8, ledger=(replace(first, generation=7), *rest)))
    assert (proof.entry, proof.broken) == (0, "entry 0: the hash chain is broken")


def test_a_step_that_does_not_match_the_position_is_found() -> None:
    assert "step 9" in alone(replace(saved.manifest(8), step=9)).broken


def test_a_run_s_snapshots_agree(tmp_path: Path) -> None:
    manifests = {one.name: one for one in runs.run(tmp_path, 1, 3, 5, 8)}
    assert [prove(one, manifests).broken for one in manifests.values()] == [""] * 4


def test_a_replaced_parent_is_found_and_a_deleted_one_is_allowed(tmp_path: Path) -> None:
    parent, child = runs.run(tmp_path, 3, 5)
    assert prove(child, {}).broken == ""
    forged = runs.resign(tmp_path / parent.name, created=1.0)
    proof = prove(read_manifest(tmp_path / child.name), {forged.name: forged})
    assert proof.broken == f"its parent {parent.name} has been replaced: the digest differs"


@pytest.mark.parametrize(
    ("ledger", "entry"),
    [(history(2, 8), 0), (history(3, 4, 8), 1), (history(3), 1)],
    ids=["other start", "other end", "truncated"],
)
def test_a_history_that_diverges_from_its_parents_shows_where(ledger: Ledger, entry: int) -> None:
    parent = saved.manifest(7, ledger=history(3, 7))
    child = saved.manifest(ledger[-1].last_step, ledger=ledger, parent=runs.parent(parent))
    proof = prove(child, {parent.name: parent})
    assert proof.entry == entry
    assert "differs from that of" in proof.broken


def test_without_an_order_of_the_data_steps_are_counted_and_no_samples() -> None:
    ledger = extend((), STEPS, 1, Cursor(), Cursor(0, 3), world_size=2)
    own: dict[str, Any] = {
        "cursor": Cursor(0, 3),
        "samples": STEPS.samples,
        "batch": STEPS.batch,
        "seed": STEPS.seed,
        "ledger": ledger,
    }
    manifest = replace(saved.manifest(3), **own, data=STEPS.fingerprint)
    proof = alone(manifest)
    assert (proof.broken, proof.samples, proof.counted, proof.epochs, proof.position) == ("", 0, 0, 0, 0)
    assert (proof.steps, proof.generations) == (3, 1)
    then = extend(ledger, saved.ORDER, 2, Cursor(), cursor(2), world_size=2, earlier=(manifest.segment,))
    later = alone(saved.manifest(2, generation=2, ledger=then, earlier=(manifest.segment,)))
    assert (later.broken, later.samples, later.counted, later.steps) == ("", 10, 8, 2)
    assert [(part.samples, part.counted, part.steps) for part in later.earlier] == [(0, 0, 3)]
