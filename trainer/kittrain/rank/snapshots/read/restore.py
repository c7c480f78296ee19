"""Restores the newest state that every rank can use, on disk or in memory. Collective.

Rank 0 reads what is replicated, once for all ranks, which need not see its folder. Each rank reads its own part of a
sharded state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import CorruptError, Tail
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.candidates import Candidates
from kittrain.rank.snapshots.folder.restore_order import RestorePoint, in_restore_order
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest
from kittrain.rank.snapshots.read.memory_restore import MemoryRestore
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.state.state_reader import FAILURES, UNUSABLE, Extras, StateReader
from kittrain.rank.world.distributed import World
from kittrain.system.storage import StorageUnavailableError, retry_io


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What the state was set to, and the verified extras of its shards."""

    point: RestorePoint
    extras: Extras


def restore_newest(world: World, state: State, folder: Path, candidates: Candidates | None) -> Restored | None:
    """Set the state to the newest valid one that is compatible; all ranks skip a damaged one alike.

    Args:
        world: all ranks.
        state: to be set; unchanged if there is nothing to restore.
        folder: of the snapshots.
        candidates: on rank 0.

    Returns:
        None if there is nothing to restore, or if nothing is usable and starting from scratch was requested.

    Raises:
        SnapshotError: a snapshot is incompatible, or there are snapshots and all are damaged; or damage was found
            after a part of the state was set, and there is nothing else to set it to. On all ranks.
        StorageUnavailableError: the storage does not respond; on all ranks.
    """
    memory = MemoryRestore(world, world.env.memory_dir)
    reader = StateReader(world, state)
    for point in _restore_points(world, candidates, memory):
        in_memory, manifest = bool(point.holders), point.manifest
        try:
            extras = memory.read(reader, point) if in_memory else _read_snapshot(world, reader, folder, manifest)
        except UNUSABLE as problem:
            _reject(world, candidates, point, problem)
        else:
            return Restored(point=point, extras=extras)
    if reader.partially_read:
        raise SnapshotError(
            f"a snapshot in {folder} proved unusable after a part of it had been loaded, and there is no other one: "
            f"restart the ranks"
        )
    return None


def _restore_points(world: World, candidates: Candidates | None, memory: MemoryRestore) -> Iterator[RestorePoint]:
    """Rank 0's restore points, one at a time, on all ranks."""
    points = _in_order(candidates, memory) if candidates else iter(())
    while point := world.broadcast_value(
        world.attempt(lambda: list(islice(points, 1)), SnapshotError, StorageUnavailableError), list[RestorePoint]
    ):
        yield point[0]


def _in_order(candidates: Candidates, memory: MemoryRestore) -> Iterator[RestorePoint]:
    copies = [copy for copy in memory.copies if candidates.accepts(copy.manifest)]
    yield from in_restore_order(candidates.compatible(), copies)
    candidates.check_from_scratch()


def _reject(
    world: World, candidates: Candidates | None, point: RestorePoint, problem: CorruptError | IncompatibleError
) -> None:
    def reject() -> None:
        if candidates:
            act = candidates.reject_copy if point.holders else candidates.reject
            act(point.manifest, problem)

    world.attempt(reject, SnapshotError)


def _read_snapshot(world: World, reader: StateReader, folder: Path, manifest: Manifest) -> Extras:
    """Set the state to a snapshot's. Errors are raised on all ranks alike."""
    reads_nothing = reader.replicated and not world.is_main
    path = folder / manifest.name

    def open_all() -> list[ShardFile]:
        return [] if reads_nothing else retry_io(lambda: list(snapshot.open_shards(path, manifest)), path, world.warn)

    opened = world.attempt(open_all, *FAILURES)
    tails = [shard.tail for shard in opened]
    return reader.read(
        world.broadcast_value(tails, list[Tail]) if reader.replicated else tails,
        lambda number, start, stop: retry_io(lambda: opened[number].read(start, stop), path, world.warn),
        holders=[0] * len(manifest.shards) if reader.replicated else (),
    )
