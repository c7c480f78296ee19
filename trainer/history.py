"""The committed history of a run, as all ranks see it: where to go on from, and what is committed next.

Rank 0 alone touches the folder; the others get its verified bytes. So the folder needs to be seen by whichever node
holds rank 0, and is read once, not once a rank.
"""

from __future__ import annotations

import time
from typing import Final

import torch

from trainer import files, marker, rng
from trainer.archive import Archive, Found, SnapshotError
from trainer.data import Cursor, Order
from trainer.distributed import World
from trainer.ledger import Ledger, extend
from trainer.snapshot import CorruptError, Manifest, Parent
from trainer.state import State, dump, load

STATE: Final = "state.pt"
RNG: Final = "rng.pt"
MODEL: Final = "model.pt"


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
        self._archive = self._open()
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
        generation, found = self._world.share(self._claim())
        self.generation = generation
        cursor = Cursor()
        if found is not None:
            manifest: Manifest = found.manifest
            self._state.load(found.contents[STATE])
            cursor = self._committed = manifest.cursor
            self._ledger = manifest.ledger
            self._parent = Parent(name=manifest.name, digest=manifest.digest)
        if found is not None and found.manifest.world_size == self._world.size:
            rng.restore(load(found.contents[RNG])[self._world.rank])
        else:
            rng.seed_all(rng.derive("rank", self._order.seed, self._order.step(cursor), self._world.rank))
        return cursor

    def commit(self, cursor: Cursor) -> None:
        """Publish a snapshot. One that cannot be written is told, and training goes on.

        Raises:
            Fenced: a newer generation has taken over.
        """
        generators = self._world.gather(rng.capture())
        if self._archive is None:
            return
        try:
            self._publish(self._archive, cursor, generators)
        except (OSError, CorruptError) as error:
            step, last = self._order.step(cursor), self._parent.name if self._parent else "none"
            self._world.say(f"warning: no snapshot at step {step}: {error}; the last good one is {last}")

    def finish(self) -> None:
        """Leave the model's file, which plain torch loads, and the mark that the run has finished.

        Raises:
            SnapshotError: one of them cannot be written.
        """
        folder = self._world.env.snapshot_dir
        if folder is not None and self._world.is_main:
            try:
                files.replace(folder / MODEL, dump(self._state.weights))
                marker.mark(folder, self._world.env.run_id, {"step": self.step, "model": MODEL})
            except OSError as error:
                raise SnapshotError(f"the trained model cannot be written to {folder}: {error}") from error
        self._world.barrier()

    def _open(self) -> Archive | None:
        env = self._world.env
        if env.snapshot_dir is None or not self._world.is_main:
            return None
        return Archive(
            env.snapshot_dir,
            run=env.run_id,
            model=self._state.signature,
            order=self._order,
            keep=env.snapshot_keep,
            say=self._world.say,
        )

    def _claim(self) -> tuple[int, Found | None]:
        """Generation first: what a stale writer still publishes after that is seen, or is not part of the history."""
        if self._archive is None:
            return 0, None
        generation = self._archive.claim()
        return generation, self._archive.newest(resume=self._world.env.resume)

    def _publish(self, archive: Archive, cursor: Cursor, generators: list[rng.RngState]) -> None:
        ledger = extend(self._ledger, self._order, self.generation, self._committed, cursor)
        manifest = archive.publish(
            Manifest(
                job=self._world.env.job,
                run=self._world.env.run_id,
                generation=self.generation,
                step=self._order.step(cursor),
                cursor=cursor,
                world_size=self._world.size,
                seed=self._order.seed,
                model=self._state.signature,
                data=self._order.fingerprint,
                torch=torch.__version__,
                created=time.time(),
                parent=self._parent,
                ledger=ledger,
            ),
            {STATE: self._state.dump(), RNG: dump(generators)},
        )
        self._parent = Parent(name=manifest.name, digest=manifest.digest)
        self._committed, self._ledger = cursor, ledger
