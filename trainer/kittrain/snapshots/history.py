"""The committed history of a run, as all ranks see it: where to go on from, and what is committed next.

Every rank writes its part of a snapshot in the background, and rank 0 publishes the whole once all of them have told
that theirs is on the disk. Where some rank does not see rank 0's folder, rank 0 writes everything, which it can as long
as the ranks hold the state alike.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from kittrain.snapshots import leaving, restore, sharing, snapshot
from kittrain.snapshots.archive import Archive, SnapshotError
from kittrain.snapshots.branch import Offer
from kittrain.snapshots.candidates import Candidates
from kittrain.snapshots.chain import Chain, Committed, Pending
from kittrain.snapshots.fitting import Identity, other_order, same_order
from kittrain.snapshots.memory import Memory
from kittrain.snapshots.retention import Retention
from kittrain.snapshots.snapshot import REST, Manifest
from kittrain.snapshots.state import State
from kittrain.snapshots.tree import load
from kittrain.snapshots.writer import Writer
from kittrain.system.storage import StorageUnavailableError
from kittrain.world import rng
from kittrain.world.distributed import World
from kittrain.world.order import Cursor, Order
from kittrain.world.seeds import derive_seed


class History:
    """Collective: every rank makes one and calls the same methods. Without a folder there is nothing to go on from.

    A context: at its end nothing is left running.

    Args:
        world: all ranks; its environment names the folder and the run.
        state: what is saved and restored.
        order: the data's order.
    """

    def __init__(self, world: World, state: State, order: Order) -> None:
        self._world = world
        self._state = state
        self._order = order
        self._folder = world.env.snapshot_dir
        self._identity = Identity(
            run=world.env.run_id, model=state.signature, optimizer=type(state.optimizer).__name__, order=order
        )
        self._archive = self._open()
        self._chain = self._begin_chain(0)
        self._background = ThreadPoolExecutor(1, "snapshot")
        self._writer = Writer(world, self._background, main_only=False)
        self._memory = Memory(world)
        self._pending: Pending | None = None
        self._publishing: Future[None] | None = None
        self._reached = Cursor()  # the last state that was to be saved, or was gone on from, and
        self._on_disk = True  # whether that is, or was to be, a snapshot
        self.generation = 0
        self.prepared = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """A lone rank publishes what it has written; several cannot agree any more when one of them failed."""
        if self._pending and self._world.size == 1:
            self._hand_over(self._pending)
        self._background.shutdown()
        self._memory.close()

    @property
    def committed(self) -> Committed:
        """The last snapshot; rank 0 knows."""
        return self._chain.last

    @property
    def pending(self) -> bool:
        """Whether a snapshot is being written; equal on all ranks."""
        return self._pending is not None

    @property
    def written(self) -> bool:
        """Whether this rank has nothing left to write."""
        return self._writer.ended

    @property
    def kept(self) -> bool:
        """Whether this rank has its last copy in memory, and may make the next one."""
        return self._memory.sealed

    def restore(self) -> Cursor:
        """Set the state to the newest good one, on disk or in memory, and claim a generation; the start without one.

        With as many ranks as before, each rank's generators go on where they were; else, and in a new order of the data
        (``resume: state``), they are derived anew from seed, step and rank.

        Raises:
            SnapshotError: the folder cannot be used, or holds another model of this run.
        """
        found = None
        if self._folder is not None:
            claimed = self._world.attempt(self._claim, SnapshotError, StorageUnavailableError)
            self.generation = self._world.broadcast_value(claimed, int)
            self._chain = self._begin_chain(self.generation)
            self._writer.main_only = not sharing.shared(
                self._world, self._folder, self.generation, sharded=self._state.sharded
            )
            found = restore.newest(self._world, self._state, self._folder, self._candidates())
        if found is not None:
            self._go_on_from(found.offer)
        if found is not None and self._same_place(found.offer.manifest):
            rng.restore(load(found.extras[_generators(self._world.rank)]))
        else:
            step = self._order.step(self._chain.cursor)
            rng.seed_all(derive_seed("rank", self._order.seed, step, self._world.rank))
        return self._chain.cursor

    def prepare(self) -> None:
        """Take the memory that snapshots and copies need, once the first step has made the optimizer's state."""
        self.prepared = True
        if self._folder is None:
            return
        tensors, _ = self._state.capture()
        self._writer.prepare(tensors)
        self._memory.prepare(tensors)

    def keep(self, cursor: Cursor, metrics: Mapping[str, float]) -> None:
        """Copy the state to main memory, where it outlives the ranks; all of them have the copy before this one.

        Args:
            cursor: where the data stand.
            metrics: of the epoch that ends here.
        """
        if self._pending and self._pending.metrics:
            return  # what was measured is known here only: nobody may go on behind it until that is on the disk
        tensors, rest = self._state.capture()
        self._memory.keep(self._chain.describe(cursor, metrics), tensors, self._extras(rest))

    def begin(self, cursor: Cursor, metrics: Mapping[str, float]) -> None:
        """Copy the state, and begin to write it; waits for what is still being written.

        Args:
            cursor: where the data stand.
            metrics: of the epoch that ends here.
        """
        if self._folder is None:
            return
        began = time.monotonic()
        self._reached, self._on_disk = cursor, True
        if self._pending:
            self._hand_over(self._pending)
        folder = self._folder / f"{snapshot.SCRATCH}{snapshot.name(self._order.step(cursor), self.generation)}"
        tensors, rest = self._state.capture()
        self._writer.begin(folder, tensors, self._extras(rest))
        stall = time.monotonic() - began
        self._pending = Pending(cursor=cursor, metrics=metrics, folder=folder, began=began, stall=stall)

    def advance(self, *, written: bool) -> None:
        """Have published what is written, between two steps.

        Args:
            written: whether all ranks have written what was begun; equal on all ranks.

        Raises:
            Fenced: a newer generation has taken over.
        """
        if self._pending and written:
            self._hand_over(self._pending)
        if self._publishing and self._publishing.done():
            self._publishing.result()

    def commit(self, cursor: Cursor, metrics: Mapping[str, float]) -> None:
        """Publish a snapshot, and wait for it. One that cannot be written is told.

        Raises:
            Fenced: a newer generation has taken over.
        """
        self.begin(cursor, metrics)
        if self._pending:
            self._hand_over(self._pending)
        if self._publishing:
            self._publishing.result()

    def finish(self) -> None:
        """Leave the model's file, which plain torch loads, and the mark that the run has finished.

        Raises:
            Fenced: a newer generation has taken over.
            SnapshotError: one of them cannot be written.
        """
        if self._state.sharded and not self._on_disk:
            self.commit(self._reached, {})
        leaving.leave(self._world, self._state, self._chain, self._reached, self._archive, self._background)

    def _go_on_from(self, offer: Offer) -> None:
        manifest = offer.manifest
        self._chain.go_on_from(manifest, offer.parent)
        self._memory.go_on_from(manifest)
        self._reached, self._on_disk = self._chain.cursor, not offer.holders
        if others := other_order(manifest, self._order):
            self._world.print(
                f"going on from the weights and the optimizer of {manifest.name} in a new order of the data, as asked: "
                f"{'; '.join(others)}; epoch {self._chain.cursor.epoch + 1} begins at its beginning"
            )

    def _same_place(self, manifest: Manifest) -> bool:
        """Whether each rank is where one was when this was written, so that its generators can go on."""
        return manifest.world_size == self._world.size and same_order(manifest, self._order)

    def _hand_over(self, pending: Pending) -> None:
        """From all ranks, which write, to rank 0, which publishes; in the background, too."""
        reports = self._writer.reports()
        self._pending = None
        if self._archive:
            self._publishing = self._background.submit(self._chain.publish, self._archive, pending, reports)

    def _open(self) -> Archive | None:
        if self._folder is None or not self._world.is_main:
            return None
        keep = Retention(self._world.env)
        return Archive(self._folder, run=self._identity.run, keep=keep, say=self._world.print)

    def _claim(self) -> int:
        return self._archive.claim() if self._archive else 0

    def _candidates(self) -> Candidates | None:
        if self._folder is None or not self._world.is_main:
            return None
        env, say = self._world.env, self._world.print
        identity = self._identity
        return Candidates(self._folder, identity=identity, resume=env.resume, from_scratch=env.from_scratch, say=say)

    def _begin_chain(self, generation: int) -> Chain:
        return Chain(self._world, self._identity, generation=generation)

    def _extras(self, rest: Any) -> dict[str, Any]:
        """What this rank writes beside its tensors: its generators; on rank 0 the state's rest, too."""
        extras: dict[str, Any] = {_generators(self._world.rank): rng.capture()}
        return extras | ({REST: rest} if self._world.is_main else {})


def _generators(rank: int) -> str:
    return f"rng/{rank}"
