"""What a finished run leaves: rank 0 writes the model's file and the mark, and the other ranks wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

from kittrain.snapshots import modelfile, weights
from kittrain.snapshots.archive import Archive, SnapshotError
from kittrain.snapshots.chain import Chain
from kittrain.snapshots.patience import wait
from kittrain.snapshots.state import State
from kittrain.system.files import Buffer
from kittrain.system.heartbeat import Phase
from kittrain.world.distributed import World
from kittrain.world.order import Cursor


def leave(
    world: World, state: State, chain: Chain, reached: Cursor, archive: Archive | None, background: Executor
) -> None:
    """Leave them, however long that takes. Collective.

    Args:
        world: all ranks; its environment says whether there is to be a model's file.
        state: as it has been trained.
        chain: of its snapshots.
        reached: where the data stand.
        archive: rank 0's; None where there is no folder of snapshots, either.
        background: where rank 0 writes.

    Raises:
        Fenced: a newer generation has taken over.
        SnapshotError: one of them cannot be written.
    """
    left = None
    if archive:
        model = _model(world, state, chain, reached, archive) if world.env.model_file else None
        left = background.submit(archive.finish, model, chain.last.step)
    wait(world, lambda: left is None or left.done())
    if left:
        left.result()
    world.barrier()


def _model(world: World, state: State, chain: Chain, reached: Cursor, archive: Archive) -> Iterator[Buffer]:
    """The model's file, part by part: of the model itself, or of the last snapshot where each rank holds a part."""
    if state.sharded and chain.cursor != reached:
        raise SnapshotError("the last snapshot could not be written, and the trained model would be made from it")
    held = weights.of_snapshot(archive.folder / chain.newest) if state.sharded else weights.live(state.held())
    for part in modelfile.pieces(held):
        world.heartbeat.beat(Phase.SAVING)  # a sign of life to those who wait
        yield part
