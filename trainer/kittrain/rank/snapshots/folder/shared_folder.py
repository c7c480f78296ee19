"""Checks whether all nodes see the same snapshot folder, or each has one on its own disk."""

from __future__ import annotations

from pathlib import Path

from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.fence import Fence
from kittrain.rank.world.distributed import World
from kittrain.system.storage import StorageUnavailableError, retry_io


def is_shared(world: World, folder: Path, generation: int, *, sharded: bool) -> bool:
    """Whether all ranks see rank 0's claim in the folder; each claim is unique. Collective.

    Args:
        world: all ranks.
        folder: the snapshot folder's path on this rank.
        generation: the generation that rank 0 claimed there.
        sharded: whether each rank holds a part of the state, so that rank 0 cannot write for all.

    Raises:
        SnapshotError: the folder is not shared, and the state is sharded.
        StorageUnavailableError: a rank could not read the folder.
    """
    claim = world.attempt(
        lambda: retry_io(lambda: Fence(folder).read_claim(generation), folder, world.warn), StorageUnavailableError
    )
    expected = world.broadcast_value(claim, str | None)
    if missing := [rank for rank, (sees,) in enumerate(world.all_gather([int(claim == expected)])) if not sees]:
        problem = f"{folder} is not the same folder on all nodes: rank {missing[0]} does not see what rank 0 wrote"
        if sharded:
            raise SnapshotError(f"{problem}; ranks that each hold a part of the state need a shared folder")
        world.print(f"{problem}; rank 0 writes all of each snapshot")
    return not missing
