"""The end of a run: rank 0 writes the model file and the finished marker while the other ranks wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

from kittrain.snapshots import model_file, weights
from kittrain.snapshots.archive import Archive, SnapshotError
from kittrain.snapshots.chain import Chain
from kittrain.snapshots.polling import wait_for_all
from kittrain.snapshots.state import State
from kittrain.system.files import Buffer
from kittrain.system.heartbeat import Phase
from kittrain.world.distributed import World
from kittrain.world.order import Cursor


def finish(
    world: World, state: State, chain: Chain, reached: Cursor, archive: Archive | None, background: Executor
) -> None:
    """Write the model file and the marker, however long that takes. Collective.

    Args:
        world: all ranks; its environment says whether to write a model file.
        state: the trained state.
        chain: the run's snapshots.
        reached: the data cursor at the end of training.
        archive: on rank 0; None if there is no snapshot folder.
        background: where rank 0 writes.

    Raises:
        Fenced: a newer generation has taken over.
        SnapshotError: the model file or the marker cannot be written.
    """
    writing = None
    if archive:
        model = _model(world, state, chain, reached, archive) if world.env.model_file else None
        writing = background.submit(archive.finish, model, chain.last.step)
    wait_for_all(world, lambda: writing is None or writing.done())
    if writing:
        writing.result()
    world.barrier()


def _model(world: World, state: State, chain: Chain, reached: Cursor, archive: Archive) -> Iterator[Buffer]:
    """The model file's contents: of the model itself, or of the last snapshot if the model is sharded."""
    if state.sharded and chain.cursor != reached:
        raise SnapshotError("the model file is made from the last snapshot, and that could not be written")
    last = archive.folder / chain.newest
    source = weights.of_snapshot(last) if state.sharded else weights.of_model(state.model_state())
    for part in model_file.stream(source):
        world.heartbeat.beat(Phase.SAVING)  # the other ranks' hang detection waits for this
        yield part
