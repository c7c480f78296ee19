"""The end of a run: the model file, and the marker that the run has finished.

Rank 0 writes the model file of a replicated model from memory. Of a sharded one each rank writes its part of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Final, TypeVar

from kittrain.rank.snapshots.files import file_part
from kittrain.rank.snapshots.files.file_part import Part
from kittrain.rank.snapshots.files.layout import bytes_of
from kittrain.rank.snapshots.files.shards import CorruptError, Piece
from kittrain.rank.snapshots.files.tree import Tensors
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import Archive, NoRoomError, SnapshotError, writing_model
from kittrain.rank.snapshots.folder.chain import Chain
from kittrain.rank.snapshots.folder.fence import Fenced
from kittrain.rank.snapshots.folder.snapshot import SCRATCH
from kittrain.rank.snapshots.state import model_file, weights
from kittrain.rank.snapshots.state.model_file import Frame
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.state.weights import Weights
from kittrain.rank.snapshots.write import planning
from kittrain.rank.snapshots.write.polling import wait_for_all
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor
from kittrain.rank.world.replicas import reshard
from kittrain.system.files import Buffer
from kittrain.system.heartbeat import Phase

T = TypeVar("T")
FAILURES: Final = (Fenced, NoRoomError, SnapshotError, CorruptError, OSError)


def finish(
    world: World, state: State, chain: Chain, reached: Cursor, archive: Archive | None, background: Executor
) -> None:
    """Write the model file and the marker, however long that takes. Collective.

    Args:
        world: all ranks; its environment says whether to write a model file.
        state: the trained state.
        chain: the run's snapshots.
        reached: the data cursor at the end of training.
        archive: on rank 0, or on one rank of each node that has a folder of its own; None if there is none.
        background: where ranks write.

    Raises:
        Fenced: a newer generation has taken over.
        NoRoomError: the model file or the marker cannot be written for want of space; or, without a file, the last
            snapshot was not. All ranks raise it, and may call this again.
        SnapshotError: the same, for another reason.
    """
    wanted = world.env.writes_model
    shared = world.env.job.snapshots.storage == "claim"
    together = (
        wanted and shared and state.sharded and _write_together(world, state, archive, chain.generation, background)
    )

    def write() -> None:
        if not (archive and world.is_main):
            return
        if not wanted and chain.last.failed:
            raise _not_stored(chain, f"what was trained is not stored anywhere: {chain.last.failed}")
        model = _model(world, state, chain, reached, archive) if wanted and not together else None
        archive.finish(model, chain.last.step, written=together)

    _in_background(world, background, write)
    if not shared:
        world.barrier()  # only once the model is there has the run finished, on all nodes
        if archive and not world.is_main:
            archive.finish(None, chain.last.step)
    world.barrier()


def _not_stored(chain: Chain, why: str) -> SnapshotError:
    """What was trained needs the last snapshot, and that was not written."""
    return NoRoomError(why) if chain.last.full else SnapshotError(why)


def _write_together(world: World, state: State, archive: Archive | None, generation: int, background: Executor) -> bool:
    """Let each rank write its part of a sharded model to one file.

    Returns:
        Whether there is a model file: not if the ranks' models differ, or the folder loses what several nodes write to
        one file.

    Raises:
        Fenced: a newer generation has taken over.
        SnapshotError: it cannot be written.
    """
    reshard(state.model)
    tensors, source = weights.of_sharded(state.model_state())
    digests = world.all_gather([planning.structure_digest(tensors)])
    if digests.count(digests[0]) != len(digests):
        return False
    scratch = f"{SCRATCH}model-g{generation:04}"
    try:
        written = _write_parts(world, tensors, source, archive, scratch, background)
    finally:
        if archive:
            snapshot.discard(archive.folder / scratch)
    if not written:
        world.print(
            f"{world.env.snapshot_dir} loses what several nodes write to one file: rank 0 writes the model file"
        )
    return written


def _write_parts(
    world: World, tensors: Tensors, source: Weights, archive: Archive | None, scratch: str, background: Executor
) -> bool:
    """Rank 0 creates the file, all ranks write their parts, and rank 0 completes it, unless a part is lost."""

    def begin() -> Frame | None:
        if archive is None:
            return None
        frame = Frame.of(source)
        with writing_model(path.parent):
            archive.begin_model(scratch, frame.end)
        return frame

    path = world.env.snapshot_dir / scratch if world.env.snapshot_dir else Path(scratch)
    frame = world.attempt(begin, *FAILURES)
    starts: dict[str, int] = world.broadcast_value(dict(frame.starts) if frame else None, dict[str, int])
    pieces = planning.plan(world, tensors, main_only=True).pieces  # buffers are rank 0's, as those of replicated models

    def content(piece: Piece) -> memoryview:
        world.heartbeat.beat(Phase.SAVING)  # the other ranks' hang detection waits for this
        return bytes_of(tensors[piece.tensor])

    def write() -> Part:
        with writing_model(path.parent):
            return file_part.write(path, pieces, starts, content)

    part = _in_background(world, background, write)
    parts = world.gather(part, Part)

    def complete() -> bool:
        if archive is None or frame is None:
            return True
        checksums = {name: reduce(xor, (one.checksums.get(name, 0) for one in parts)) for name in starts}
        probes = [one.probe for one in parts if one.probe]
        with writing_model(path.parent):
            return archive.complete_model(scratch, frame.parts(checksums), probes)

    return world.broadcast_value(_in_background(world, background, complete), bool)


def _in_background(world: World, background: Executor, act: Callable[[], T]) -> T:
    """What a function returns, however long it takes. Collective: any rank's error is raised on all of them."""
    future: Future[T] = background.submit(act)
    wait_for_all(world, future.done)
    return world.attempt(future.result, *FAILURES)


def _model(world: World, state: State, chain: Chain, reached: Cursor, archive: Archive) -> Iterator[Buffer]:
    """The model file's contents: of the model itself, or of the last snapshot if the model is sharded."""
    if state.sharded and chain.cursor != reached:
        raise _not_stored(chain, f"the model file is made from the last snapshot: {chain.last.failed}")
    last = archive.folder / chain.newest
    source = weights.of_snapshot(last) if state.sharded else weights.of_model(state.model_state())
    for part in model_file.stream(source):
        world.heartbeat.beat(Phase.SAVING)  # the other ranks' hang detection waits for this
        yield part
