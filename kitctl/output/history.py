"""The objects of ``snapshots`` and ``audit``: snapshots, and the proofs of their histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.output.base import Document, part_of
from kitjob import history

if TYPE_CHECKING:
    from kitjob.history import Proof
    from kitjob.history import SnapshotDetails as SnapshotDetails  # noqa: PLC0414 - exported

    _Facts = Document
else:  # as parts of documents
    _Facts, Proof = part_of(history.SnapshotFacts, Document), part_of(history.Proof)
    SnapshotDetails = part_of(history.SnapshotDetails, beyond=history.SnapshotFacts)


class Snapshot(_Facts, frozen=True, kw_only=True, tag="Snapshot"):
    """A snapshot; what follows from its manifest is null where the manifest cannot be trusted."""

    details: SnapshotDetails | None = None
    """What its manifest says. Null in lists."""


class SnapshotList(Document, frozen=True, kw_only=True, tag="SnapshotList"):
    """Snapshots, as ``snapshots list`` and ``snapshots verify`` print them."""

    items: tuple[Snapshot, ...]
    """The newest first."""


class AuditReport(Document, frozen=True, kw_only=True, tag="AuditReport"):
    """The proofs that ``audit`` prints."""

    proved: bool
    """Whether each sample was counted exactly once."""
    proofs: tuple[Proof, ...]
    """One per snapshot, the newest first."""
    unusable: tuple[Snapshot, ...]
    """Snapshots that cannot be read."""
