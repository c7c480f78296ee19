"""Rank 0's view of a run's committed history, and how the next snapshot is added to it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from kittrain.rank.snapshots.files.shards import CorruptError, Shard
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import Archive
from kittrain.rank.snapshots.folder.compatibility import Identity, same_order
from kittrain.rank.snapshots.folder.ledger import Ledger, LedgerError, Segment, extend, new_order_start
from kittrain.rank.snapshots.folder.snapshot import Manifest, Parent
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor
from kittrain.system.storage import is_full


@dataclass(frozen=True, kw_only=True)
class Written:
    """A shard that a rank wrote, and which of its values are not finite; empty if all are."""

    shard: Shard
    not_finite: str = ""


Report = Written | OSError | None  # what a rank wrote, or the error; None if rank 0 writes for all


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A snapshot that the ranks are writing.

    Attributes:
        cursor: of the data, when the state was copied.
        metrics: of the epoch that it ends.
        folder: scratch folder for the shards.
        began: on a monotonic clock, in seconds.
        stall: how long training waited for the copy, in seconds.
        not_finite: what is not finite about the last step; empty if nothing is known to be.
    """

    cursor: Cursor
    metrics: Mapping[str, float]
    folder: Path
    began: float
    stall: float
    not_finite: str = ""


@dataclass(frozen=True, kw_only=True)
class Life:
    """A round that this process has outlived, or a part of it: who took which steps.

    Attributes:
        generation: of the ranks.
        world_size: their number.
        start: of the data, before its first step.
        stop: after its last finished one.
    """

    generation: int
    world_size: int
    start: Cursor
    stop: Cursor


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A published snapshot, and how long it took.

    Attributes:
        step: after which it was taken.
        time: when it was published, in Unix seconds; None: not known.
        seconds: from the start of the copy until it was published.
        stall: the part of these in which training waited.
        not_finite: as in its manifest.
        size: bytes of its files; 0: not known.
        failed: why there is no later one although one was due; empty if there is none to be missed.
        full: whether that is for want of space.
    """

    step: int = 0
    time: float | None = None
    seconds: float = 0.0
    stall: float = 0.0
    not_finite: str = ""
    size: int = 0
    failed: str = ""
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class _Tip:
    """The end of a history, and the newest snapshot in it, with what one in its place takes over."""

    ledger: Ledger = ()
    earlier: tuple[Segment, ...] = ()
    cursor: Cursor = field(default_factory=Cursor)
    parent: Parent | None = None
    grandparent: Parent | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


class Chain:
    """A chain of snapshots, each continuing the previous one. Not collective; one thread at a time publishes.

    Attributes:
        generation: of the ranks.
        last: the last snapshot that was committed here, or resumed from.
    """

    def __init__(self, world: World, identity: Identity, *, generation: int) -> None:
        self._world = world
        self._identity = identity
        self._order = identity.order
        self.generation = generation
        self._tip = _Tip()
        self._newest: Manifest | None = None
        self._warned = False  # of a state that is not finite
        self.last = Committed()

    @property
    def cursor(self) -> Cursor:
        """Where the history ends."""
        return self._tip.cursor

    @property
    def newest(self) -> str:
        """The name of the newest snapshot in it; empty if there is none."""
        return self._tip.parent.name if self._tip.parent else ""

    @property
    def manifest(self) -> Manifest | None:
        """Of the newest snapshot, shards and all; None if there is none."""
        return self._newest

    def resume_from(self, manifest: Manifest, parent: Manifest | None) -> None:
        """Continue this history with the next snapshot, under a new order of the data if that has changed.

        Args:
            manifest: of a snapshot, or of an in-memory copy.
            parent: of the newest snapshot in its history.
        """
        self._newest = parent
        before = Parent(name=parent.name, digest=parent.digest) if parent else None
        earlier = manifest.earlier
        if not same_order(manifest, self._order):
            earlier = (*earlier, manifest.segment)
        self._tip = _Tip(
            ledger=manifest.ledger,
            earlier=earlier,
            cursor=self._cursor(manifest),
            parent=before,
            grandparent=parent.parent if parent else None,
            metrics=parent.metrics if parent else {},
        )
        step, created = (self._order.step(self._cursor(parent)), parent.created) if parent else (0, None)
        self.last = Committed(step=step, time=created)

    def outlive(self, rounds: Sequence[Life], cursor: Cursor) -> None:
        """Add the steps that were taken since the newest snapshot, which only the memory of the ranks holds.

        Raises:
            LedgerError: these do not continue it.
        """
        tip = self._tip
        for life in rounds:
            if life.start <= tip.cursor < life.stop:
                size, earlier = life.world_size, tip.earlier
                steps = tip.ledger, self._order, life.generation, tip.cursor, life.stop
                ledger = extend(*steps, world_size=size, earlier=earlier)
                tip = replace(tip, ledger=ledger, cursor=life.stop)
        if tip.cursor != cursor:
            raise LedgerError(len(tip.ledger), f"the snapshots reach {tip.cursor}, and the ranks are at {cursor}")
        self._tip = tip

    def compose(self, pending: Pending, reports: Sequence[Report]) -> Manifest | None:
        """The manifest of what the ranks have written; None, and a warning, if one of them could not."""
        try:
            return self._composed(pending, reports)
        except OSError as error:
            self._failed(pending, error)
            return None

    def publish(self, archive: Archive, pending: Pending, reports: Sequence[Report]) -> None:
        """Commit what the ranks have written, and delete expired snapshots. Logs a warning if it cannot be published.

        Raises:
            Fenced: a newer generation has taken over.
        """
        try:
            manifest = self._composed(pending, reports)
            archive.publish(manifest, pending.folder)
        except (OSError, CorruptError) as error:
            self._failed(pending, error)
        else:
            self._commit(manifest, pending)
            archive.apply_retention()
        finally:
            snapshot.discard(pending.folder)

    def publish_part(self, archive: Archive, pending: Pending, manifest: Manifest, numbers: Sequence[int]) -> None:
        """Commit the shards of this node; each node does that with its own. Raises as ``publish`` does.

        Args:
            archive: of this node.
            pending: what its ranks have written.
            manifest: of the whole snapshot, equal on all nodes.
            numbers: of this node's shards.
        """
        try:
            archive.publish(manifest, pending.folder, numbers)
        except (OSError, CorruptError) as error:
            self._failed(pending, error)
        else:
            self._commit(manifest, pending)
        finally:
            snapshot.discard(pending.folder)

    def _composed(self, pending: Pending, reports: Sequence[Report]) -> Manifest:
        return replace(
            self.describe(pending.cursor, pending.metrics),
            shards=_written(reports),
            not_finite=pending.not_finite or _not_finite(reports),
        )

    def _failed(self, pending: Pending, error: Exception) -> None:
        parent = self._tip.parent
        step, last = self._order.step(pending.cursor), parent.name if parent else "none"
        text = f"no snapshot at step {step}: {error}; the last good one is {last}"
        if self._world.is_main:
            self._world.print(f"warning: {text}")
        else:
            self._world.warn(text)  # of this node's folder
        self.last = replace(self.last, failed=f"no snapshot at step {step}: {error}", full=is_full(error))

    def _commit(self, manifest: Manifest, pending: Pending) -> None:
        self.resume_from(manifest, manifest)
        self.last = Committed(
            step=manifest.step,
            time=time.time(),
            seconds=time.monotonic() - pending.began,
            stall=pending.stall,
            not_finite=manifest.not_finite,
            size=sum(shard.size for shard in manifest.shards),
        )
        self._warn(manifest)

    def describe(self, cursor: Cursor, metrics: Mapping[str, float]) -> Manifest:
        """The manifest of the state at a cursor, without its shards. Thread-safe.

        A snapshot of the same name will be replaced, and its metrics are taken over.
        """
        tip, step = self._tip, self._order.step(cursor)
        replaces = tip.parent is not None and tip.parent.name == snapshot.name(step, self.generation)
        return Manifest(
            job=self._world.env.job.name,
            run=self._identity.run,
            generation=self.generation,
            step=step,
            cursor=cursor,
            world_size=self._world.size,
            seed=self._order.seed,
            model=self._identity.model,
            optimizer=self._identity.optimizer,
            data=self._order.fingerprint,
            samples=self._order.samples,
            batch=self._order.batch,
            torch=torch.__version__,
            created=time.time(),
            parent=tip.grandparent if replaces else tip.parent,
            ledger=extend(
                tip.ledger,
                self._order,
                self.generation,
                tip.cursor,
                cursor,
                world_size=self._world.size,
                earlier=tip.earlier,
            ),
            earlier=tip.earlier,
            metrics={**tip.metrics, **metrics} if replaces else metrics,
        )

    def _warn(self, manifest: Manifest) -> None:
        """Say once that a snapshot is not finite."""
        if manifest.not_finite and not self._warned:
            self._warned = True
            self._world.print(
                f"warning: the snapshot of step {manifest.step} is not finite: {manifest.not_finite}; the last finite "
                "one is kept, whatever snapshots.keep says"
            )

    def _cursor(self, manifest: Manifest) -> Cursor:
        """A snapshot's cursor in this run's order of the data."""
        return manifest.cursor if same_order(manifest, self._order) else new_order_start(manifest.cursor)


def _written(reports: Sequence[Report]) -> tuple[Shard, ...]:
    """The shards by rank.

    Raises:
        OSError: a rank could not write its shard.
    """
    for report in reports:
        if isinstance(report, OSError):
            raise report
    return tuple(report.shard for report in reports if isinstance(report, Written))


def _not_finite(reports: Sequence[Report]) -> str:
    """The first value that is not finite; empty if all are."""
    return next((one.not_finite for one in reports if isinstance(one, Written) and one.not_finite), "")
