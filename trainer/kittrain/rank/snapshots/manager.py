"""Saves and restores a run's training state on all ranks: where to resume, and what is committed next.

Every rank writes its part of a snapshot in the background, and rank 0 publishes it once all parts are on disk. If some
rank does not see rank 0's folder, rank 0 writes everything; that needs a replicated state. With ``snapshots.storage:
perNode`` or ``memory`` each node has a folder of its own: one rank of each publishes what its ranks have written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import copies_status, shared_folder, snapshot
from kittrain.rank.snapshots.folder.archive import Archive, SnapshotError
from kittrain.rank.snapshots.folder.candidates import Candidates
from kittrain.rank.snapshots.folder.chain import Chain, Committed, Pending, Report
from kittrain.rank.snapshots.folder.compatibility import Identity, order_differences, same_order
from kittrain.rank.snapshots.folder.ledger import LedgerError
from kittrain.rank.snapshots.folder.listing import NOTHING
from kittrain.rank.snapshots.folder.restore_order import RestorePoint
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import REST, Manifest
from kittrain.rank.snapshots.mirror import restoring
from kittrain.rank.snapshots.read import restore, survivors
from kittrain.rank.snapshots.read.node_restore import NodeFolders
from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.snapshots.state.rank_state import RankState
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.write import finish
from kittrain.rank.snapshots.write.memory_copies import MemoryCopies
from kittrain.rank.snapshots.write.polling import wait_for_all
from kittrain.rank.snapshots.write.writer import Writer
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor, Order
from kittrain.rank.world.seeds import derive_seed
from kittrain.system.heartbeat import Phase
from kittrain.system.storage import StorageUnavailableError

used = False  # whether this process takes the library's snapshots: kittrain.agent.hooks.files.own_folders asks


class SnapshotManager:
    """Collective: every rank makes one and calls the same methods. Without a folder there is nothing to restore.

    As a context manager it waits at the end for background work.

    Args:
        world: all ranks; its environment names the folder and the run.
        state: to save and restore.
        order: of the data.
        own: what each rank saves besides; None is its random number generators only.
    """

    def __init__(self, world: World, state: State, order: Order, own: RankState | None = None) -> None:
        global used  # noqa: PLW0603  of this process
        used = True
        self._world = world
        self._state = state
        self._order = order
        self._own = own or RankState(world.rank)
        self._folder = world.env.snapshot_dir
        self._per_node = world.env.job.snapshots.storage != "claim"
        self._identity = Identity(
            run=world.env.run_id, model=state.signature, optimizer=state.optimizer_class, order=order
        )
        self._archive = self._make_archive()
        self._chain = Chain(world, self._identity, generation=0)
        self._background = ThreadPoolExecutor(1, "snapshot")
        self._writer = Writer(world, self._background, main_only=False)
        self._memory = MemoryCopies(world)
        self._pending: Pending | None = None
        self._publishing: Future[None] | None = None
        self._last_cursor: Cursor | None = None  # of the last snapshot of this process
        self._reached = Cursor()  # of the last state to save or resumed from
        self._on_disk = True  # whether that state is a snapshot on disk, as opposed to an in-memory copy
        self.generation = 0
        self.alike = False  # whether the script had seeded all ranks alike, where ranks live on
        self.not_whole = ""  # on rank 0, why the newest snapshot was not used, if no node has some of its shards
        self.prepared = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """A single rank publishes what it has written; several ranks cannot agree any more if one of them failed."""
        if self._pending and self._world.size == 1:
            self._publish(self._pending)
        # A rank that outlives its round does not wait for a snapshot that is not going to be published.
        self._background.shutdown(wait=error is None or self._world.rounds is None)
        self._memory.close()

    @property
    def committed(self) -> Committed:
        """The last snapshot; only rank 0 knows."""
        return self._chain.last

    @property
    def pending(self) -> bool:
        """Whether a snapshot is being written; equal on all ranks."""
        return self._pending is not None

    @property
    def written(self) -> bool:
        """Whether this rank has nothing left to write."""
        return self._writer.idle

    @property
    def memory_ready(self) -> bool:
        """Whether this rank's last in-memory copy is complete, so that it can make the next one."""
        return self._memory.ready

    def restore(self) -> Cursor:
        """Restore the newest valid state, on disk or in memory, and claim a generation; returns the data cursor.

        Without one, training starts at the beginning. ``RankState`` says what becomes of the generators.

        Raises:
            SnapshotError: the folder cannot be used, or holds another model of this run.
            StorageUnavailableError: the storage does not respond.
        """
        found = None
        if self._folder is not None:
            nodes = self._nodes(self._folder)
            whole = nodes.whole() if nodes else NOTHING
            if whole is not None:
                # Before a generation is claimed: that is above what is there.
                restoring.fill(self._world, self._folder, above=whole)
            self._claim(self._folder)
            if nodes:
                found = nodes.restore(self._state)
                self.not_whole = nodes.not_whole
            else:
                found = restore.restore_newest(self._world, self._state, self._folder, self._candidates())
        if found is None:
            self._own.begin(self._order.seed)
            return self._chain.cursor
        manifest = found.point.manifest
        self._resume_from(found.point)
        seed = derive_seed("rank", self._order.seed, self._order.step(self._chain.cursor), self._world.rank)
        ranks = manifest.world_size if same_order(manifest, self._order) else 0
        self._own.restore(found.extras, ranks=ranks, same=ranks == self._world.size, seed=seed)
        return self._chain.cursor

    def outlive(self, brought: Brought | None, change: Callable[[], None]) -> Brought | None:
        """Take the state of the ranks that have outlived their round; None if all ranks are new: then ``restore``.

        The newest snapshot only tells which part of the history is on disk: its state is not read.

        Args:
            brought: by this rank; None if its process is new.
            change: called before this rank's state is changed.

        Raises:
            StatesDifferError: the state of none of them can be used.
            SnapshotError: the snapshots do not belong to it.
        """
        world = self._world
        own = self._reached_by(brought)
        sources = survivors.agree(world, own, outlived=brought is not None, part=self._state.part.number)
        if sources is None:
            self.alike = survivors.seeded_alike(world)
            return None
        agreed = world.broadcast_value(brought, Brought, source=min(sources.values()))
        assert agreed.cursor
        step = self._order.step(agreed.cursor)
        if self._folder is not None:
            self._claim(self._folder)
            self._continue_from(agreed)
        survivors.share(world, self._state, sources=sources, has=own == self._reached_by(agreed), change=change)
        self.alike = agreed.alike
        self._own.outlive(self._order.seed, step, alike=agreed.alike)
        self._reached, self._on_disk = agreed.cursor, False
        return agreed

    def _reached_by(self, brought: Brought | None) -> int | None:
        """How far a rank's state is, to compare ranks; None: it has none."""
        if brought is None or brought.cursor is None:
            return None
        return brought.reached(self._order.step(brought.cursor))

    def _claim(self, folder: Path) -> None:
        """Claim a generation for all ranks."""
        if self._per_node:
            self._claim_on_each_node()
            return
        claim = self._archive.claim if self._archive else int
        claimed = self._world.attempt(claim, SnapshotError, StorageUnavailableError)
        self.generation = self._world.broadcast_value(claimed, int)
        self._chain = Chain(self._world, self._identity, generation=self.generation)
        self._writer.main_only = not shared_folder.is_shared(
            self._world, folder, self.generation, sharded=self._state.sharded
        )

    def _claim_on_each_node(self) -> None:
        """Claim the generation above those that any node knows, in the folder of each."""
        errors = (SnapshotError, StorageUnavailableError)
        archive, world = self._archive, self._world
        highest = world.attempt(archive.highest if archive else int, *errors)
        above = max(known for (known,) in world.all_gather([highest]))

        def claim() -> None:
            if archive and (claimed := archive.claim(above=above)) != above + 1:
                raise SnapshotError(f"other ranks of this node have claimed generation {claimed - 1} meanwhile")

        world.attempt(claim, *errors)
        self.generation = above + 1
        self._chain = Chain(world, self._identity, generation=self.generation)

    def _continue_from(self, agreed: Brought) -> None:
        """Find the newest snapshot, and add what was trained since. All ranks: snapshots are due at the same steps."""
        candidates = self._candidates()

        def newest() -> list[Manifest]:
            return list(islice(candidates.compatible(), 1)) if candidates else []

        if self._folder is not None and (nodes := self._nodes(self._folder)):
            one = nodes.newest()
            known = [one] if one else []
        else:
            found = self._world.attempt(newest, SnapshotError, StorageUnavailableError)
            known = self._world.broadcast_value(found, list[Manifest])
        for manifest in known:
            self._chain.resume_from(manifest, manifest)
        try:
            self._chain.outlive(agreed.rounds, agreed.cursor or Cursor())
        except LedgerError as error:
            raise SnapshotError(f"the ranks that are left do not continue the snapshots: {error}") from error

    def settle(self, timeout: float) -> bool:
        """Wait until what this rank publishes is published, or has failed; returns whether it is."""
        return self._publishing is None or bool(wait([self._publishing], timeout).done)

    def prepare(self) -> None:
        """Allocate the memory for snapshots and copies, once the first step has created the optimizer's state."""
        self.prepared = True
        if self._folder is None:
            return
        tensors, _ = self._state.capture()
        self._writer.prepare(tensors)
        self._memory.prepare(tensors)

    def copy_to_memory(self, cursor: Cursor, metrics: Mapping[str, float]) -> None:
        """Copy the state to main memory that outlives the ranks. Requires ``memory_ready`` on all ranks.

        Args:
            cursor: of the data.
            metrics: of the epoch that ends here.
        """
        if self._pending and self._pending.metrics:
            return  # the metrics are nowhere else: nothing may resume from a later state until they are on disk
        tensors, rest = self._state.capture()
        self._memory.copy(self._chain.describe(cursor, metrics), tensors, self._extras(rest))

    def begin(self, cursor: Cursor, metrics: Mapping[str, float], *, not_finite: str = "") -> None:
        """Copy the state and start writing it; waits for the previous snapshot first, and replaces one of this cursor.

        Args:
            cursor: of the data.
            metrics: of the epoch that ends here.
            not_finite: what is not finite about the last step, such as its loss; empty if nothing is known to be.
        """
        if self._folder is None:
            return
        began = time.monotonic()
        if self._last_cursor == cursor and not self._pending:
            self._wait_until_published()  # its shards are in a scratch folder of the same name until then
        self._last_cursor, self._reached, self._on_disk = cursor, cursor, True
        if self._pending and self._pending.cursor == cursor:
            metrics = {**self._pending.metrics, **metrics}
            self._writer.reports()  # its folder is replaced
        elif self._pending:
            self._publish(self._pending)
        folder = self._folder / f"{snapshot.SCRATCH}{snapshot.name(self._order.step(cursor), self.generation)}"
        tensors, rest = self._state.capture()
        self._writer.begin(folder, tensors, self._extras(rest))
        stall = time.monotonic() - began
        self._pending = Pending(
            cursor=cursor, metrics=metrics, folder=folder, began=began, stall=stall, not_finite=not_finite
        )

    def advance(self, *, written: bool) -> None:
        """Start publishing a snapshot that is written. Call it between two steps.

        Args:
            written: whether all ranks have written their part; equal on all ranks.

        Raises:
            Fenced: a newer generation has taken over.
        """
        if self._pending and written:
            self._publish(self._pending)
        if self._publishing and self._publishing.done():
            self._publishing.result()

    def commit(
        self, cursor: Cursor, metrics: Mapping[str, float], *, not_finite: str = "", changed: bool = False
    ) -> None:
        """Write and publish a snapshot, unless there is one of this cursor, and wait. If it fails, log a warning.

        The other arguments are those of ``begin``.

        Args:
            cursor: of the data.
            metrics: of the epoch that ends here.
            not_finite: see ``begin``.
            changed: the state or its metrics may have changed since the snapshot of this cursor, so it is replaced.

        Raises:
            Fenced: a newer generation has taken over.
        """
        if not changed and self._is_committed(cursor):
            return
        self.begin(cursor, metrics, not_finite=not_finite)
        if self._pending:
            self._publish(self._pending)
        if self._publishing:
            self._publishing.result()

    def finish(self) -> None:
        """Write the model file, which plain torch loads, and the marker that the run has finished.

        Raises:
            Fenced: a newer generation has taken over.
            SnapshotError: one of them cannot be written.
        """
        if self._state.sharded and not self._on_disk:
            self.commit(self._reached, {})
        if self._state.sharded and self._folder is not None and (nodes := self._nodes(self._folder)):
            self._bring_newest(nodes)
        finish.finish(self._world, self._state, self._chain, self._reached, self._archive, self._background)

    def _bring_newest(self, nodes: NodeFolders) -> None:
        """Have all shards of the newest snapshot on rank 0's node, which makes the model file of them."""
        if not self._world.env.writes_model:
            return
        for newest in self._of_rank_0(self._chain.manifest):
            try:
                nodes.bring(newest)
            except CorruptError as error:
                raise SnapshotError(f"the trained model cannot be made of {newest.name}: {error}") from error

    def _is_committed(self, cursor: Cursor) -> bool:
        """Whether a snapshot of that state is published. Collective."""
        if self._pending or self._last_cursor != cursor:
            return False
        if self._publishing:
            self._publishing.result()
        return self._world.broadcast_value(self.committed.step == self._order.step(cursor), bool)

    def _wait_until_published(self) -> None:
        """Wait for what rank 0 publishes. Collective."""
        if self._publishing:
            self._publishing.result()
        self._world.barrier()

    def _resume_from(self, point: RestorePoint) -> None:
        manifest = point.manifest
        self._chain.resume_from(manifest, point.parent)
        self._memory.resume_from(manifest)
        self._reached, self._on_disk = self._chain.cursor, not point.holders
        if differences := order_differences(manifest, self._order):
            self._world.print(
                f"resuming the weights and the optimizer of {manifest.name} in a new order of the data, as requested: "
                f"{'; '.join(differences)}; epoch {self._chain.cursor.epoch + 1} starts from its beginning"
            )

    def _publish(self, pending: Pending) -> None:
        """Collect all ranks' reports; rank 0 publishes in the background."""
        reports = self._writer.reports()
        self._pending = None
        if self._per_node:
            self._publish_on_each_node(pending, reports)
        elif self._archive:
            self._publishing = self._background.submit(self._chain.publish, self._archive, pending, reports)

    def _publish_on_each_node(self, pending: Pending, reports: Sequence[Report]) -> None:
        """Have one rank of each node publish what its node has written, under a manifest of rank 0."""
        world, before = self._world, self._publishing
        wait_for_all(world, lambda: before is None or before.done())  # its manifest names the one before
        if before:
            before.result()
        composed = self._chain.compose(pending, reports) if world.is_main else None
        found = self._of_rank_0(composed)
        if self._archive and not found:
            snapshot.discard(pending.folder)
        for manifest in found if self._archive else ():
            assert self._archive
            mine = range(world.rank, world.rank + world.env.local_world_size)
            publish = self._chain.publish_part
            self._publishing = self._background.submit(publish, self._archive, pending, manifest, mine)

    def _of_rank_0(self, manifest: Manifest | None) -> list[Manifest]:
        """Rank 0's manifest, if it has one, on all ranks."""
        return self._world.broadcast_value([manifest] if manifest else [], list[Manifest])

    def wait_for_copies(self, patience: float) -> bool:
        """Wait until other nodes have copies of the last snapshot; returns whether they do. Collective.

        Args:
            patience: seconds, after which the snapshot is on one node only.
        """
        folder, deadline = self._folder, time.monotonic() + patience
        if folder is None or not self._per_node or self._world.env.heartbeat_file is None:  # no agent: no process
            return True
        digests = [one.digest for one in self._of_rank_0(self._chain.manifest)]
        copied = not digests

        def look() -> bool:
            nonlocal copied
            self._world.heartbeat.beat(Phase.SAVING)
            found = copies_status.read(folder, self._identity.run)
            copied = copied or bool(found and found.copied_digest in digests)
            return copied or self._archive is None or time.monotonic() > deadline

        wait_for_all(self._world, look)
        return all(known for (known,) in self._world.all_gather([int(copied or self._archive is None)]))

    def _nodes(self, folder: Path) -> NodeFolders | None:
        """The folders of all nodes; None if they share one."""
        return NodeFolders(self._world, folder, self._candidates()) if self._per_node else None

    def _make_archive(self) -> Archive | None:
        """On rank 0; with a folder for each node on one rank of each."""
        leads = self._world.env.local_rank == 0 if self._per_node else self._world.is_main
        if self._folder is None or not leads:
            return None
        retention = Retention(self._world.env)
        return Archive(self._folder, run=self._identity.run, retention=retention, log=self._world.print)

    def _candidates(self) -> Candidates | None:
        if self._folder is None or not self._world.is_main:
            return None
        env, log, identity = self._world.env, self._world.print, self._identity
        return Candidates(
            self._folder,
            identity=identity,
            resume=env.job.resume,
            from_scratch=env.job.from_scratch,
            finite=env.job.policy.on_non_finite == "stop",
            log=log,
        )

    def _extras(self, rest: Any) -> dict[str, Any]:
        """What this rank writes besides its tensors; on rank 0 also the state's rest."""
        return self._own.capture() | ({REST: rest} if self._world.is_main else {})
