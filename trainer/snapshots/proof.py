"""The proof that a run counted each sample of each epoch exactly once, from what its snapshots say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.snapshots.ledger import LedgerError, audit, parting
from trainer.snapshots.snapshot import Manifest
from trainer.world.order import Cursor, Order


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What one snapshot's history proves.

    Attributes:
        snapshot: its name.
        epochs: that are complete.
        position: samples of the epoch after those.
        samples: size of the data set.
        counted: samples counted once, over all epochs.
        steps: optimizer steps that took them.
        generations: how often ranks started and committed something.
        broken: where and why the proof fails; empty where it holds.
        entry: index of the ledger's entry where it fails, if it is one.
    """

    snapshot: str
    epochs: int
    position: int
    samples: int
    counted: int
    steps: int
    generations: int
    broken: str = ""
    entry: int | None = None


def prove(manifest: Manifest, others: Mapping[str, Manifest]) -> Proof:
    """Audit a snapshot's ledger, and hold it against its cursor and against the snapshot that it goes on from.

    Args:
        manifest: the snapshot's.
        others: manifests that are still there, by name; its parent may be among them.
    """
    order, cursor = Order(samples=manifest.samples, batch=manifest.batch, seed=manifest.seed), manifest.cursor
    broken, entry = _fault(manifest, order, others)
    return Proof(
        snapshot=manifest.name,
        epochs=cursor.epoch,
        position=cursor.position,
        samples=order.samples,
        counted=cursor.epoch * order.samples + cursor.position,
        steps=manifest.step,
        generations=len({one.generation for one in manifest.ledger}),
        broken=broken,
        entry=entry,
    )


def _fault(manifest: Manifest, order: Order, others: Mapping[str, Manifest]) -> tuple[str, int | None]:
    """What is wrong, and at which entry; nothing where all of it holds."""
    try:
        reached = audit(manifest.ledger, order)
    except LedgerError as error:
        return str(error), error.entry
    told = Cursor(manifest.cursor.epoch, manifest.cursor.position)
    if reached != told or order.step(told) != manifest.step:
        return f"the ledger ends at {reached}, but the snapshot says {told} and step {manifest.step}", None
    parent = manifest.parent and others.get(manifest.parent.name)
    if not parent or not manifest.parent:
        return "", None
    if parent.digest != manifest.parent.digest:
        return f"it went on from another {parent.name} than the one that is here now", None
    if (entry := parting(parent.ledger, manifest.ledger)) is not None:
        return f"entry {entry}: differs from that of {parent.name}, which it went on from", entry
    return "", None
