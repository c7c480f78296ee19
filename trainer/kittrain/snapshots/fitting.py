"""Whether a run can go on from a snapshot: what it says about itself, against what the run is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kittrain.snapshots.ledger import LedgerError, audit
from kittrain.snapshots.shards import CorruptError
from kittrain.snapshots.snapshot import ForeignError, Manifest
from kittrain.world.order import Order

_SHOWN = 12  # letters of a digest: enough to tell two apart


class OtherOrderError(ForeignError):
    """Its cursor means nothing in this run's order of the data; model and optimizer fit."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a run is, as far as its snapshots tell.

    Attributes:
        run: its id.
        model: signature of the parameters' names, shapes and types.
        optimizer: its class.
        order: of the data.
    """

    run: str
    model: str
    optimizer: str
    order: Order


def check(manifest: Manifest, identity: Identity) -> None:
    """Hold what a manifest says against a run and against itself. All that differs is named, with both values.

    Raises:
        CorruptError: its ledger does not hold.
        OtherOrderError: it is of other data, or of another batch size or seed.
        ForeignError: it is of another model or optimizer.
    """
    audit_cursor(manifest)
    other = _other_state(manifest, identity)
    if others := other + other_order(manifest, identity.order):
        raise (ForeignError if other else OtherOrderError)("; ".join(others))


def same_order(manifest: Manifest, order: Order) -> bool:
    """Whether a manifest's cursor means in an order what it meant in its own, as far as is known."""
    return manifest.data == order.fingerprint


def audit_cursor(manifest: Manifest) -> None:
    """Hold a manifest's ledger against its cursor.

    Raises:
        CorruptError: the ledger does not count each sample up to the cursor once.
    """
    try:
        reached = audit(manifest.ledger, manifest.segment.order, manifest.earlier)
    except LedgerError as error:
        raise CorruptError(f"its ledger does not hold: {error}") from error
    if reached != manifest.cursor:
        raise CorruptError(f"its ledger ends at {reached}, its cursor is {manifest.cursor}")


def _other_state(manifest: Manifest, identity: Identity) -> list[str]:
    others = []
    if manifest.model != identity.model:
        told = f"signature {manifest.model[:_SHOWN]}, not {identity.model[:_SHOWN]}"
        others.append(f"its model has other parameters ({told})")
    if manifest.optimizer != identity.optimizer:
        others.append(f"its optimizer is {manifest.optimizer}, not {identity.optimizer}")
    return others


def other_order(manifest: Manifest, order: Order) -> list[str]:
    """What differs between a manifest's order of the data and another one, with both values."""
    if same_order(manifest, order):
        return []
    facts = {
        "data set's size": (manifest.samples, order.samples),
        "batch size": (manifest.batch, order.batch),
        "seed": (manifest.seed, order.seed),
    }
    others = [f"its {what} is {theirs}, not {ours}" for what, (theirs, ours) in facts.items() if theirs != ours]
    told = f"fingerprint {manifest.data}, not {order.fingerprint}"
    return others or [f"its data set is another one of the same length ({told})"]
