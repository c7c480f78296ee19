"""Proves from snapshots' ledgers that a run counted each sample of each epoch exactly once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kitjob.history import EarlierData, LedgerEntry, Proof
from kittrain.rank.snapshots.folder.ledger import Entry, LedgerError, Segment, audit, first_divergence, new_order_start
from kittrain.rank.snapshots.folder.snapshot import Manifest
from kittrain.rank.world.order import Cursor, Order


def prove(manifest: Manifest, others: Mapping[str, Manifest]) -> Proof:
    """Audit a snapshot's ledger, and compare it with its cursor and with its parent snapshot.

    An epoch that one order of the data does not complete starts over in the next one.

    Args:
        manifest: the snapshot's.
        others: manifests that still exist, by name; its parent may be among them.
    """
    order = manifest.segment.order
    broken, entry = _find_fault(manifest, order, others)
    *earlier, current = _parts(manifest)
    return Proof(
        snapshot=manifest.name,
        before=current.before,
        epochs=current.epochs,
        position=current.position,
        samples=current.samples,
        counted=current.counted,
        steps=current.steps,
        earlier=tuple(earlier),
        generations=len({one.generation for one in manifest.ledger}),
        broken=broken,
        entry=entry,
        ledger=entries(manifest),
    )


def entries(manifest: Manifest) -> tuple[LedgerEntry, ...]:
    """The entries of a snapshot's ledger, without their hashes."""
    return tuple(
        LedgerEntry(**{name: getattr(one, name) for name in LedgerEntry.__fields__}) for one in manifest.ledger
    )


def _parts(manifest: Manifest) -> Iterator[EarlierData]:
    """The parts of the history by order of the data, the current one last."""
    start, first = Cursor(), 0
    for segment in (*manifest.earlier, manifest.segment):
        entries = manifest.ledger[first : segment.entries]
        reached = manifest.cursor if segment == manifest.segment else _end(entries, segment, start)
        steps = segment.order.step(reached) - segment.order.step(start)
        yield _part(segment, start, reached, steps) if segment.order.is_known else _steps_only(start, steps)
        start, first = new_order_start(reached), segment.entries


def _part(segment: Segment, start: Cursor, reached: Cursor, steps: int) -> EarlierData:
    epochs = reached.epoch - start.epoch
    return EarlierData(
        samples=segment.samples,
        batch=segment.batch,
        seed=segment.seed,
        before=start.epoch,
        epochs=epochs,
        position=reached.position,
        counted=epochs * segment.samples + reached.position,
        steps=steps,
    )


def _steps_only(start: Cursor, steps: int) -> EarlierData:
    return EarlierData(samples=0, batch=0, seed=0, before=start.epoch, epochs=0, position=0, counted=0, steps=steps)


def _end(entries: Sequence[Entry], segment: Segment, start: Cursor) -> Cursor:
    """Where a segment's last entry ends."""
    if not entries:
        return start
    last = entries[-1]
    return Cursor(last.epoch, last.stop) if last.stop < segment.samples else Cursor(last.epoch + 1)


def _find_fault(manifest: Manifest, order: Order, others: Mapping[str, Manifest]) -> tuple[str, int | None]:
    """The first fault, and the ledger's entry that has it; an empty text if the proof holds."""
    try:
        reached = audit(manifest.ledger, order, manifest.earlier)
    except LedgerError as error:
        return str(error), error.entry
    recorded = Cursor(manifest.cursor.epoch, manifest.cursor.position)
    if reached != recorded or order.step(recorded) != manifest.step:
        return f"the ledger ends at {reached}, but the snapshot has {recorded} and step {manifest.step}", None
    parent = manifest.parent and others.get(manifest.parent.name)
    if not parent or not manifest.parent:
        return "", None
    if parent.digest != manifest.parent.digest:
        return f"its parent {parent.name} has been replaced: the digest differs", None
    if (entry := first_divergence(parent.ledger, manifest.ledger)) is not None:
        return f"entry {entry}: differs from that of its parent {parent.name}", entry
    return "", None
