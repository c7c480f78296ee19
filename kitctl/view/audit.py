"""An audit as plain text: the proof in a line, or where it breaks. Pure."""

from __future__ import annotations

from itertools import groupby

from kitctl import printable
from kitctl.snapshots import Audit, Part, Proof
from kitctl.view.columns import many
from kitctl.view.snapshots import ledger


def page(audit: Audit, *, wide: bool) -> list[str]:
    """The newest snapshot's proof, and whatever contradicts it; with ``wide`` the history, entry by entry."""
    return [printable.line(one) for one in _lines(audit, wide=wide)]


def _lines(audit: Audit, *, wide: bool) -> list[str]:
    lines = [f"cannot vouch for anything: {one.name}: {one.reason}" for one in audit.unusable]
    for proof in (proof for proof in audit.proofs if proof.broken):
        lines += [f"broken in {proof.snapshot}: {proof.broken}", *ledger(proof.ledger, proof.entry)]
    if not audit.proofs:
        return [*lines, "no snapshot, so no history"]
    newest = audit.proofs[0]
    if newest.broken:
        return lines
    earlier = [before(one) for one in newest.earlier]
    return [*lines, *earlier, proved(newest, agree=len(audit.proofs)), *(ledger(newest.ledger) if wide else [])]


def before(part: Part) -> str:
    """``proved: 2 epochs of 64 samples in batches of 16, seed 0, ...: then a new order of the data was taken``."""
    broken_off = f", and {part.position} of epoch {part.before + part.epochs + 1}, which then began anew"
    return (
        f"proved: {many(part.epochs, 'epoch')} of {part.samples} samples in batches of {part.batch}, seed {part.seed}"
        f"{broken_off if part.position else ''}: {part.counted} samples, each counted exactly once, in "
        f"{many(part.steps, 'step')}; then training went on in a new order of the data"
    )


def proved(proof: Proof, *, agree: int) -> str:
    """``proved: 12 epochs of 1024 samples, each counted exactly once: 12288 in 768 steps, by 3 generations ...``."""
    part = f" and {proof.position} of epoch {proof.before + proof.epochs + 1}" if proof.position else ""
    return (
        f"proved: {many(proof.epochs, 'epoch')} of {proof.samples} samples{part}, each counted exactly once: "
        f"{proof.counted} samples in {many(proof.steps, 'step')}, by {many(proof.generations, 'generation')} "
        f"({_ranks(proof)}), in {many(len(proof.ledger), 'entry', 'entries')}; "
        f"from {proof.snapshot}{f', with which {agree - 1} more agree' if agree > 1 else ''}"
    )


def fix(audit: Audit) -> str:
    """What to do about one that does not hold."""
    if audit.unusable:
        return "kitctl snapshots verify names the damage; a run goes on from the newest good snapshot"
    return "the state of that snapshot is not what its history says: go on from an older one, or begin anew"


def _ranks(proof: Proof) -> str:
    """How often ranks began anew, and how many there were: one number for each time that it changed."""
    sizes = " -> ".join(str(size) for size, _ in groupby(one.world_size for one in proof.ledger))
    return f"{many(proof.generations - 1, 'restart')}; {sizes} ranks"
