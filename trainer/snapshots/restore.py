"""Finding the newest state that every rank can go on from, on disk or in memory, and what it holds. Collective.

Of a snapshot, what the ranks hold alike is read once, by rank 0, which need not share its folder with them; of what
they hold in parts each reads its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainer.snapshots import loading, snapshot
from trainer.snapshots.archive import Archive
from trainer.snapshots.branch import Offer, in_order
from trainer.snapshots.recall import UNUSABLE, Contents, Extras, Recall
from trainer.snapshots.snapshot import Manifest
from trainer.snapshots.state import State, Tensors
from trainer.world.distributed import World


@dataclass(frozen=True, kw_only=True)
class Found:
    """Verified contents, and where they come from."""

    offer: Offer
    tensors: Tensors
    extras: Extras


def newest(world: World, state: State, folder: Path, archive: Archive | None) -> Found | None:
    """The newest good state that fits; what is damaged is passed over by all ranks alike.

    Args:
        world: all ranks.
        state: what it is for; it is not changed.
        folder: of the snapshots.
        archive: rank 0's.

    Raises:
        SnapshotError: this run's own snapshot is of another model, other data or another optimizer.
    """
    recall = Recall(world, world.env.memory_dir)
    for offer in _offers(world, archive, recall):
        in_memory, manifest = bool(offer.holders), offer.manifest
        try:
            tensors, extras = recall.read(state, offer) if in_memory else _read(world, state, folder, manifest)
        except UNUSABLE as problem:
            if archive:
                pass_over = archive.pass_over_copy if in_memory else archive.pass_over
                pass_over(manifest, problem)
        else:
            return Found(offer=offer, tensors=tensors, extras=extras)
    return None


def _offers(world: World, archive: Archive | None, recall: Recall) -> Iterator[Offer]:
    """Rank 0's candidates, one after the other, on all ranks."""
    offers: Iterator[Offer] = iter(())
    if archive:
        copies = [copy for copy in recall.copies if archive.takes(copy.manifest)]
        offers = in_order(archive.offers(resume=world.env.resume), copies)
    while offer := world.share(list(islice(offers, 1))):
        yield offer[0]


def _read(world: World, state: State, folder: Path, manifest: Manifest) -> Contents:
    """What this rank needs of a snapshot. What is wrong with it is raised on all ranks alike."""

    def read() -> Contents:
        if not (state.sharded or world.is_main):
            return {}, {}
        with snapshot.open_shards(folder / manifest.name, manifest) as opened:
            extras = {key: value for shard in opened for key, value in shard.extras.items()}
            if not state.sharded:
                return loading.read_full(opened), extras
            tensors = state.like()
            loading.read_into(tensors, opened)
            return tensors, extras

    tensors, extras = world.attempt(read, *UNUSABLE)
    return (tensors, extras) if state.sharded else (world.share_tensors(tensors), world.share(extras))
