"""The objects of ``snapshots`` and ``audit``: snapshots, and the proofs of their histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.output.base import Document, Part, part_of
from kitjob import history

if TYPE_CHECKING:
    from kitjob.history import LedgerEntry, Proof, Tensor
else:  # as parts of documents
    LedgerEntry, Proof, Tensor = part_of(history.LedgerEntry), part_of(history.Proof), part_of(history.Tensor)


class SnapshotDetails(Part, frozen=True, kw_only=True):
    """What the manifest of a snapshot says."""

    job: str
    """The job that took it."""
    position: int
    """Samples of the epoch that are consumed."""
    samples: int
    """Samples of an epoch."""
    batch: int
    """Samples of a step, over all ranks."""
    seed: int
    """Seed of the order of samples."""
    torch: str
    """Version of torch that wrote it."""
    parent: str
    """The snapshot that its run resumed from. Empty: none."""
    digest: str
    """Digest of its manifest."""
    ledger: tuple[LedgerEntry, ...]
    """The history that it continues."""
    tensors: tuple[Tensor, ...]
    """The model's tensors."""


class Snapshot(Document, frozen=True, kw_only=True, tag="Snapshot"):
    """A snapshot; what follows from its manifest is null where the manifest cannot be trusted."""

    name: str
    """Name of its folder."""
    condition: str
    """``whole``, ``verified`` (every byte was read), ``damaged``, ``foreign`` (of another version), ``unreadable`` or
    ``unfinished``."""
    reason: str
    """Why it cannot be used. Empty: it can."""
    step: int
    """The step that it was taken after."""
    generation: int
    """The generation of ranks that took it; each start of the ranks is a new one."""
    size: int
    """Size of all its files."""
    epoch: int | None
    """Epoch of its last step, from 1."""
    run: str | None
    """Id of the run that took it."""
    world_size: int | None
    """Ranks of that run."""
    created: float | None
    """When it was taken."""
    not_finite: str
    """Why its state is not finite, such as `the loss of step 31 is nan`. Empty: no such value was found."""
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
