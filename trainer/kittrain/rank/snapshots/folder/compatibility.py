"""Whether a run can resume from a snapshot: compares its manifest with the run. Pure.

Why: decision 22.
"""

from __future__ import annotations

from dataclasses import dataclass

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder.ledger import LedgerError, audit
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest
from kittrain.rank.world.order import Order

_DIGEST_SHOWN = 12  # characters of a digest in messages: enough to distinguish two


class OrderMismatchError(IncompatibleError):
    """Model and optimizer match, but the cursor belongs to another order of the data."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a snapshot has to match.

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
    """Check a manifest against a run, and its ledger against its cursor. The error names all differences.

    Raises:
        CorruptError: the ledger is not valid.
        OrderMismatchError: the data, the batch size or the seed differ.
        IncompatibleError: the model or the optimizer differ.
    """
    audit_cursor(manifest)
    other_state = _state_differences(manifest, identity)
    if differences := other_state + order_differences(manifest, identity.order):
        raise (IncompatibleError if other_state else OrderMismatchError)("; ".join(differences))


def same_order(manifest: Manifest, order: Order) -> bool:
    """Whether a manifest's cursor means the same in an order of the data, as far as its fingerprint shows."""
    return manifest.data == order.fingerprint


def audit_cursor(manifest: Manifest) -> None:
    """Check a manifest's ledger against its cursor.

    Raises:
        CorruptError: the ledger does not count each sample up to the cursor once.
    """
    try:
        reached = audit(manifest.ledger, manifest.segment.order, manifest.earlier)
    except LedgerError as error:
        raise CorruptError(f"its ledger is not valid: {error}") from error
    if reached != manifest.cursor:
        raise CorruptError(f"its ledger ends at {reached}, its cursor is {manifest.cursor}")


def _state_differences(manifest: Manifest, identity: Identity) -> list[str]:
    differences = []
    if manifest.model != identity.model:
        signatures = f"signature {manifest.model[:_DIGEST_SHOWN]}, not {identity.model[:_DIGEST_SHOWN]}"
        differences.append(f"its model has other parameters ({signatures})")
    if manifest.optimizer != identity.optimizer:
        differences.append(f"its optimizer is {manifest.optimizer}, not {identity.optimizer}")
    return differences


def order_differences(manifest: Manifest, order: Order) -> list[str]:
    """The differences between a manifest's order of the data and another, with both values."""
    if same_order(manifest, order):
        return []
    fields = {
        "data set's size": (manifest.samples, order.samples),
        "batch size": (manifest.batch, order.batch),
        "seed": (manifest.seed, order.seed),
    }
    differences = [f"its {field} is {theirs}, not {ours}" for field, (theirs, ours) in fields.items() if theirs != ours]
    fingerprints = f"fingerprint {manifest.data}, not {order.fingerprint}"
    return differences or [f"its data set is another one of the same length ({fingerprints})"]
