"""Whether the folder of snapshots is one folder, or one on each node's own disk."""

from __future__ import annotations

from pathlib import Path

from kittrain.snapshots.archive import SnapshotError
from kittrain.snapshots.fence import Fence
from kittrain.system.storage import StorageUnavailableError, retry_io
from kittrain.world.distributed import World


def shared(world: World, folder: Path, generation: int, *, sharded: bool) -> bool:
    """Whether all ranks see the folder as rank 0 does: its claim, which no other folder holds. Collective.

    Args:
        world: all ranks.
        folder: as each of them knows it.
        generation: that rank 0 has claimed there.
        sharded: whether each rank holds a part of the state, so that rank 0 cannot write for all.

    Raises:
        SnapshotError: they do not, and rank 0 cannot write for them.
        StorageUnavailableError: whether one of them does cannot be told.
    """
    mark = world.attempt(
        lambda: retry_io(lambda: Fence(folder).mark(generation), folder, world.warn), StorageUnavailableError
    )
    told = world.broadcast_value(mark, str | None)
    blind = [rank for rank, sees in enumerate(world.gather(mark == told, bool)) if not sees]
    if blind := world.broadcast_value(blind, list[int]):
        what = f"{folder} is not the same folder on all nodes: rank {blind[0]} does not see what rank 0 wrote"
        if sharded:
            raise SnapshotError(f"{what}; ranks that each hold a part of the state need one that they share")
        world.print(f"{what}; rank 0 writes all of each snapshot")
    return not blind
