"""Going on from the newest state that every rank can go on from, on disk or in memory. Collective.

Of a snapshot, what the ranks hold alike is read once, by rank 0, which need not share its folder with them; of what
they hold in parts each reads its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kittrain.snapshots import snapshot
from kittrain.snapshots.archive import SnapshotError
from kittrain.snapshots.branch import Offer, in_order
from kittrain.snapshots.candidates import Candidates
from kittrain.snapshots.reading import FAILURES, UNUSABLE, Extras, Reader
from kittrain.snapshots.recall import Recall
from kittrain.snapshots.shardfile import ShardFile
from kittrain.snapshots.shards import CorruptError, Tail
from kittrain.snapshots.snapshot import ForeignError, Manifest
from kittrain.snapshots.state import State
from kittrain.system.storage import StorageUnavailableError, retry_io
from kittrain.world.distributed import World


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the state was set to, and the verified small things beside its tensors."""

    offer: Offer
    extras: Extras


def newest(world: World, state: State, folder: Path, candidates: Candidates | None) -> Found | None:
    """Set the state to the newest good one that fits; what is damaged is passed over by all ranks alike.

    None where there is nothing to go on from, so that to begin anew loses nothing, or where that was asked for.

    Args:
        world: all ranks.
        state: to be set; it stays as it is where there is nothing to go on from.
        folder: of the snapshots.
        candidates: rank 0's.

    Raises:
        SnapshotError: a snapshot is of something else, or there are some and all are damaged; or damage was found after
            a part of the state had been set, and there is nothing else to set it to. On all ranks.
        StorageUnavailableError: whether there is one, or a good one, cannot be told; on all ranks.
    """
    recall = Recall(world, world.env.memory_dir)
    reader = Reader(world, state)
    for offer in _offers(world, candidates, recall):
        in_memory, manifest = bool(offer.holders), offer.manifest
        try:
            extras = recall.read(reader, offer) if in_memory else _read(world, reader, folder, manifest)
        except UNUSABLE as problem:
            _pass_over(world, candidates, offer, problem)
        else:
            return Found(offer=offer, extras=extras)
    if reader.half_read:
        raise SnapshotError(
            f"a snapshot in {folder} proved unusable after a part of it had been loaded, and there is no other one: "
            f"start the ranks again"
        )
    return None


def _offers(world: World, candidates: Candidates | None, recall: Recall) -> Iterator[Offer]:
    """Rank 0's candidates, one after the other, on all ranks; behind the last one, whether to begin anew."""
    offers = _tried(candidates, recall) if candidates else iter(())
    while offer := world.broadcast_value(
        world.attempt(lambda: list(islice(offers, 1)), SnapshotError, StorageUnavailableError), list[Offer]
    ):
        yield offer[0]


def _tried(candidates: Candidates, recall: Recall) -> Iterator[Offer]:
    copies = [copy for copy in recall.copies if candidates.takes(copy.manifest)]
    yield from in_order(candidates.offers(), copies)
    candidates.begin_anew()


def _pass_over(world: World, candidates: Candidates | None, offer: Offer, problem: CorruptError | ForeignError) -> None:
    def say() -> None:
        if candidates:
            pass_over = candidates.pass_over_copy if offer.holders else candidates.pass_over
            pass_over(offer.manifest, problem)

    world.attempt(say, SnapshotError)


def _read(world: World, reader: Reader, folder: Path, manifest: Manifest) -> Extras:
    """Set the state to a snapshot's. What is wrong with it is raised on all ranks alike."""
    alone = reader.alike and not world.is_main
    path = folder / manifest.name

    def open_all() -> list[ShardFile]:
        return [] if alone else retry_io(lambda: list(snapshot.open_shards(path, manifest)), path, world.warn)

    opened = world.attempt(open_all, *FAILURES)
    tails = [shard.tail for shard in opened]
    return reader.read(
        world.broadcast_value(tails, list[Tail]) if reader.alike else tails,
        lambda number, start, stop: retry_io(lambda: opened[number].read(start, stop), path, world.warn),
        holders=[0] * len(manifest.shards) if reader.alike else (),
    )
