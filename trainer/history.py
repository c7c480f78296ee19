"""The committed history of a run, as all ranks see it: where to go on from, and what is committed next.

Every rank writes its part of a snapshot, and rank 0 publishes the whole. Where some rank does not see rank 0's folder,
rank 0 writes everything, which it can as long as the ranks hold the state alike.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from trainer import files, marker, restore, rng, snapshot
from trainer.archive import Archive, SnapshotError
from trainer.data import Cursor, Order
from trainer.distributed import World
from trainer.fence import Fence
from trainer.ledger import Ledger, extend
from trainer.shards import CorruptError, Shard
from trainer.snapshot import Manifest, Parent
from trainer.state import State, dump, load
from trainer.writer import Report, Writer

MODEL: Final = "model.pt"
REST: Final = "rest"  # in rank 0's shard: all of the state that is no tensor


class History:
    """Collective: every rank makes one and calls the same methods. Without a folder there is nothing to go on from.

    Args:
        world: all ranks; its environment names the folder and the run.
        state: what is saved and restored.
        order: the data's order.
    """

    def __init__(self, world: World, state: State, order: Order) -> None:
        self._world = world
        self._state = state
        self._order = order
        self._signature = state.signature
        self._folder = world.env.snapshot_dir
        self._archive = self._open()
        self._writer = Writer(world, main_only=False)
        self._ledger: Ledger = ()
        self._parent: Parent | None = None
        self._committed = Cursor()
        self.generation = 0

    @property
    def step(self) -> int:
        """The last committed step; rank 0 knows."""
        return self._order.step(self._committed)

    def restore(self) -> Cursor:
        """Set the state to the newest good snapshot's and claim a generation; the start without one.

        With as many ranks as before, each rank's generators go on where they were; else they are derived anew from
        seed, step and rank.

        Raises:
            SnapshotError: the folder cannot be used, or holds another model of this run.
        """
        found = None
        if self._folder is not None:
            self.generation = self._world.share(self._archive.claim() if self._archive else 0)
            self._writer = Writer(self._world, main_only=not self._seen_by_all(self._folder))
            found = restore.newest(self._world, self._state, self._folder, self._archive)
        if found is not None:
            manifest = found.manifest
            self._state.load(found.tensors, load(found.extras[REST]))
            self._committed, self._ledger = manifest.cursor, manifest.ledger
            self._parent = Parent(name=manifest.name, digest=manifest.digest)
        if found is not None and found.manifest.world_size == self._world.size:
            rng.restore(load(found.extras[_generators(self._world.rank)]))
        else:
            rng.seed_all(rng.derive("rank", self._order.seed, self.step, self._world.rank))
        return self._committed

    def commit(self, cursor: Cursor) -> None:
        """Publish a snapshot. One that cannot be written is told, and training goes on.

        Raises:
            Fenced: a newer generation has taken over.
        """
        if self._folder is None:
            return
        manifest = self._manifest(cursor)
        scratch = self._folder / f"{snapshot.SCRATCH}{manifest.name}"
        tensors, rest = self._state.capture()
        self._writer.begin(scratch, tensors, self._extras(rest))
        reports = self._writer.reports()
        if self._archive is None:
            return
        try:
            self._publish(self._archive, manifest, scratch, reports)
        except (OSError, CorruptError) as error:
            last = self._parent.name if self._parent else "none"
            self._world.say(f"warning: no snapshot at step {manifest.step}: {error}; the last good one is {last}")
        finally:
            snapshot.discard(scratch)

    def finish(self) -> None:
        """Leave the model's file, which plain torch loads, and the mark that the run has finished.

        Raises:
            SnapshotError: one of them cannot be written.
        """
        weights = self._state.weights()
        if self._folder is not None and self._world.is_main:
            try:
                files.replace(self._folder / MODEL, dump(weights))
                marker.mark(self._folder, self._world.env.run_id, {"step": self.step, "model": MODEL})
            except OSError as error:
                raise SnapshotError(f"the trained model cannot be written to {self._folder}: {error}") from error
        self._world.barrier()

    def _open(self) -> Archive | None:
        if self._folder is None or not self._world.is_main:
            return None
        return Archive(
            self._folder,
            run=self._world.env.run_id,
            model=self._signature,
            order=self._order,
            keep=self._world.env.snapshot_keep,
            say=self._world.say,
        )

    def _seen_by_all(self, folder: Path) -> bool:
        """Whether all ranks see the folder as rank 0 does: its claim, which no other folder holds.

        Raises:
            SnapshotError: they do not, and rank 0 cannot write for them.
        """
        mark = Fence(folder).mark(self.generation)
        told = self._world.share(mark)
        blind = [rank for rank, sees in enumerate(self._world.gather(mark == told)) if not sees]
        if blind := self._world.share(blind):
            what = f"{folder} is not the same folder on all nodes (rank {blind[0]} does not see what rank 0 wrote)"
            if self._state.sharded:
                raise SnapshotError(f"{what}: ranks that each hold a part of the model need one that they share")
            self._world.say(f"{what}: rank 0 writes all of each snapshot")
        return not blind

    def _extras(self, rest: Any) -> dict[str, bytes]:
        """What this rank writes beside its tensors: its generators; on rank 0 the state's rest, too."""
        generators = {_generators(self._world.rank): dump(rng.capture())}
        if self._writer.main_only:
            generators = {key: value for one in self._world.gather(generators) for key, value in one.items()}
        return generators | ({REST: dump(rest)} if self._world.is_main else {})

    def _manifest(self, cursor: Cursor) -> Manifest:
        """All that is known before anything is written; the rest follows from what was committed before."""
        return Manifest(
            job=self._world.env.job,
            run=self._world.env.run_id,
            generation=self.generation,
            step=self._order.step(cursor),
            cursor=cursor,
            world_size=self._world.size,
            seed=self._order.seed,
            model=self._signature,
            data=self._order.fingerprint,
            samples=self._order.samples,
            batch=self._order.batch,
            torch=torch.__version__,
            created=time.time(),
            parent=self._parent,
            ledger=extend(
                self._ledger, self._order, self.generation, self._committed, cursor, world_size=self._world.size
            ),
        )

    def _publish(self, archive: Archive, manifest: Manifest, scratch: Path, reports: Sequence[Report]) -> None:
        for report in reports:
            if isinstance(report, OSError):
                raise report
        manifest = replace(manifest, shards=tuple(report for report in reports if isinstance(report, Shard)))
        archive.publish(manifest, scratch)
        self._parent = Parent(name=manifest.name, digest=manifest.digest)
        self._committed, self._ledger = manifest.cursor, manifest.ledger


def _generators(rank: int) -> str:
    return f"rng/{rank}"
