"""Going on from the newest state that every rank can go on from, on disk or in memory. Collective.

Of a snapshot, what the ranks hold alike is read once, by rank 0, which need not share its folder with them; of what
they hold in parts each reads its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainer.snapshots import snapshot
from trainer.snapshots.archive import Archive, SnapshotError
from trainer.snapshots.branch import Offer, in_order
from trainer.snapshots.reading import UNUSABLE, Extras, Reader
from trainer.snapshots.recall import Recall
from trainer.snapshots.snapshot import Manifest
from trainer.snapshots.state import State
from trainer.world.distributed import World


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the state was set to, and the verified small things beside its tensors."""

    offer: Offer
    extras: Extras


def newest(world: World, state: State, folder: Path, archive: Archive | None) -> Found | None:
    """Set the state to the newest good one that fits; what is damaged is passed over by all ranks alike.

    Args:
        world: all ranks.
        state: to be set; it stays as it is where there is nothing to go on from.
        folder: of the snapshots.
        archive: rank 0's.

    Raises:
        SnapshotError: this run's own snapshot is of another model, other data or another optimizer; or damage was
            found after a part of the state had been set, and there is nothing else to set it to.
    """
    recall = Recall(world, world.env.memory_dir)
    reader = Reader(world, state)
    for offer in _offers(world, archive, recall):
        in_memory, manifest = bool(offer.holders), offer.manifest
        try:
            extras = recall.read(reader, offer) if in_memory else _read(world, reader, folder, manifest)
        except UNUSABLE as problem:
            if archive:
                pass_over = archive.pass_over_copy if in_memory else archive.pass_over
                pass_over(manifest, problem)
        else:
            return Found(offer=offer, extras=extras)
    if reader.half_read:
        raise SnapshotError(
            f"a snapshot in {folder} proved unusable after a part of it had been loaded, and there is no other one: "
            f"start the ranks again"
        )
    return None


def _offers(world: World, archive: Archive | None, recall: Recall) -> Iterator[Offer]:
    """Rank 0's candidates, one after the other, on all ranks."""
    offers: Iterator[Offer] = iter(())
    if archive:
        copies = [copy for copy in recall.copies if archive.takes(copy.manifest)]
        offers = in_order(archive.offers(resume=world.env.resume), copies)
    while offer := world.share(list(islice(offers, 1))):
        yield offer[0]


def _read(world: World, reader: Reader, folder: Path, manifest: Manifest) -> Extras:
    """Set the state to a snapshot's. What is wrong with it is raised on all ranks alike."""
    alone = reader.alike and not world.is_main
    opened = world.attempt(
        lambda: [] if alone else list(snapshot.open_shards(folder / manifest.name, manifest)), *UNUSABLE
    )
    tails = [shard.tail for shard in opened]
    return reader.read(
        world.share(tails) if reader.alike else tails,
        lambda number, start, stop: opened[number].read(start, stop),
        holders=[0] * len(manifest.shards) if reader.alike else (),
    )
