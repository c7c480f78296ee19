"""What rank 0 knows of a run's committed history, and how the next snapshot becomes a part of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.snapshots import snapshot
from trainer.snapshots.archive import Archive
from trainer.snapshots.ledger import Ledger, extend
from trainer.snapshots.shards import CorruptError, Shard
from trainer.snapshots.snapshot import Manifest, Parent
from trainer.world.distributed import World
from trainer.world.order import Cursor, Order

Report = Shard | OSError | None  # what a rank wrote, or why it could not; nothing where rank 0 writes for all


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A snapshot that the ranks are writing.

    Attributes:
        cursor: where the data stood when the state was copied.
        metrics: of the epoch that it ends.
        folder: that the shards are written to.
        began: on a steady clock, in seconds.
        stall: how long training waited for the copy, in seconds.
    """

    cursor: Cursor
    metrics: Mapping[str, float]
    folder: Path
    began: float
    stall: float


@dataclass(frozen=True, kw_only=True)
class Committed:
    """How a snapshot went.

    Attributes:
        step: that it was taken behind.
        seconds: from the beginning of the copy until it was published.
        stall: of these, how many training waited.
    """

    step: int = 0
    seconds: float = 0.0
    stall: float = 0.0


class Chain:
    """Snapshot after snapshot, each going on from the one before. Not collective; one thread at a time.

    Attributes:
        cursor: up to where history is committed.
        last: the last snapshot that was committed here, or gone on from.
    """

    def __init__(self, world: World, order: Order, *, model: str, optimizer: str, generation: int) -> None:
        self._world = world
        self._order = order
        self._model = model
        self._optimizer = optimizer
        self._generation = generation
        self._ledger: Ledger = ()
        self._parent: Parent | None = None
        self.cursor = Cursor()
        self.last = Committed()

    def go_on_from(self, manifest: Manifest) -> None:
        """The next snapshot follows this one."""
        self._parent = Parent(name=manifest.name, digest=manifest.digest)
        self._ledger, self.cursor = manifest.ledger, manifest.cursor
        self.last = Committed(step=manifest.step)

    def publish(self, archive: Archive, pending: Pending, reports: Sequence[Report]) -> None:
        """Commit what the ranks have written. What cannot be published is told, and nothing is left of it.

        Raises:
            Fenced: a newer generation has taken over.
        """
        try:
            manifest = self._manifest(pending, _written(reports))
            archive.publish(manifest, pending.folder)
        except (OSError, CorruptError) as error:
            step, last = self._order.step(pending.cursor), self._parent.name if self._parent else "none"
            self._world.say(f"warning: no snapshot at step {step}: {error}; the last good one is {last}")
        else:
            self.go_on_from(manifest)
            self.last = Committed(step=manifest.step, seconds=time.monotonic() - pending.began, stall=pending.stall)
        finally:
            snapshot.discard(pending.folder)

    def _manifest(self, pending: Pending, shards: tuple[Shard, ...]) -> Manifest:
        return Manifest(
            job=self._world.env.job,
            run=self._world.env.run_id,
            generation=self._generation,
            step=self._order.step(pending.cursor),
            cursor=pending.cursor,
            world_size=self._world.size,
            seed=self._order.seed,
            model=self._model,
            optimizer=self._optimizer,
            data=self._order.fingerprint,
            samples=self._order.samples,
            batch=self._order.batch,
            torch=torch.__version__,
            created=time.time(),
            parent=self._parent,
            ledger=extend(
                self._ledger, self._order, self._generation, self.cursor, pending.cursor, world_size=self._world.size
            ),
            metrics=pending.metrics,
            shards=shards,
        )


def _written(reports: Sequence[Report]) -> tuple[Shard, ...]:
    """The shards by rank.

    Raises:
        OSError: a rank could not write its own.
    """
    for report in reports:
        if isinstance(report, OSError):
            raise report
    return tuple(report for report in reports if isinstance(report, Shard))
