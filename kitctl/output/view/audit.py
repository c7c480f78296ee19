"""An audit as plain text: the proof in one line, or where it fails. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from kitctl.base import printable
from kitctl.base.quantity import pluralize
from kitctl.output.view.snapshots import ledger
from kitjob.history import Audit, EarlierData, Proof

_OWN: Final = "since the script takes its batches from a loader of its own"
_USE_DATA: Final = (
    "take the batches from kittrain.Data, in Training or in Run(..., data=data); snapshots record its samples"
)


def page(audit: Audit, *, wide: bool) -> list[str]:
    """The newest snapshot's proof, and all contradictions; with ``wide`` the ledger of the history."""
    return [printable.line(one) for one in _lines(audit, wide=wide)]


def _lines(audit: Audit, *, wide: bool) -> list[str]:
    lines = [f"unusable: {one.name}: {one.reason}" for one in audit.unusable]
    for proof in (proof for proof in audit.proofs if proof.broken):
        lines += [f"broken in {proof.snapshot}: {proof.broken}", *ledger(proof.ledger, proof.entry)]
    if not audit.proofs:
        return lines or ["nothing to prove: there are no snapshots, which hold the record of the samples"]
    newest = audit.proofs[0]
    if newest.broken:
        return lines
    earlier = [before(one) for one in newest.earlier]
    last = proved if newest.samples else not_recorded
    line = last(newest, agree=len(audit.proofs))
    return [*lines, *earlier, line, *(ledger(newest.ledger) if wide else [])]


def before(part: EarlierData) -> str:
    """``proved: 2 epochs of 64 samples in batches of 16, seed 0, ...: then a new order of the data``."""
    if not part.samples:
        return (
            f"not recorded: the samples of {pluralize(part.steps, 'step')}, {_OWN}; then training continued with Data"
        )
    unfinished = f", and {part.position} of epoch {part.before + part.epochs + 1}, which then started over"
    return (
        f"proved: {pluralize(part.epochs, 'epoch')} of {part.samples} samples in batches of {part.batch}, "
        f"seed {part.seed}{unfinished if part.position else ''}: {part.counted} samples, each counted exactly once, in "
        f"{pluralize(part.steps, 'step')}; then training continued in a new order of the data"
    )


def proved(proof: Proof, *, agree: int) -> str:
    """``proved: 12 epochs of 1024 samples, each counted exactly once: 12288 in 768 steps, by 3 generations ...``."""
    part = f" and {proof.position} of epoch {proof.before + proof.epochs + 1}" if proof.position else ""
    return (
        f"proved: {pluralize(proof.epochs, 'epoch')} of {proof.samples} samples{part}, each counted exactly once: "
        f"{proof.counted} samples in {pluralize(proof.steps, 'step')}, {_by(proof, agree)}"
    )


def not_recorded(proof: Proof, *, agree: int) -> str:
    """``nothing to prove: ... is not recorded; 40 steps in one unbroken history, by 2 generations ...``."""
    return (
        f"nothing to prove: which samples a step took is not recorded, {_OWN}; {pluralize(proof.steps, 'step')} in one "
        f"unbroken history, {_by(proof, agree)}"
    )


def fix(audit: Audit) -> str:
    """What to do about a failed audit."""
    if audit.unusable:
        return "kitctl snapshots verify shows the damage; a run resumes from the newest valid snapshot"
    if not audit.proofs:
        return f"ask again after the first snapshot of Training or Run; a script without them takes none: {_USE_DATA}"
    if not any(proof.broken for proof in audit.proofs):
        return (
            _USE_DATA if not audit.proofs[0].samples else "for a proof of the whole run: kitctl submit --from-scratch"
        )
    return "the state of that snapshot contradicts its history: resume from an older one, or start over"


def _by(proof: Proof, agree: int) -> str:
    """``by 2 generations (1 restart; 2 ranks), in 2 entries; from step-...; 1 more agree``."""
    return (
        f"by {pluralize(proof.generations, 'generation')} ({_ranks(proof)}), in "
        f"{pluralize(len(proof.ledger), 'entry', 'entries')}; from {proof.snapshot}"
        f"{f'; {agree - 1} more agree' if agree > 1 else ''}"
    )


def _ranks(proof: Proof) -> str:
    """How often the ranks restarted, and each number of ranks in turn."""
    sizes = " -> ".join(str(size) for size, _ in groupby(one.world_size for one in proof.ledger))
    return f"{pluralize(proof.generations - 1, 'restart')}; {sizes} rank{'s' if sizes != '1' else ''}"
