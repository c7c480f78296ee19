"""Finding the newest snapshot that every rank can go on from, and what it holds. Collective.

What the ranks hold alike is read once, by rank 0, which need not share its folder with them; of what they hold in
parts each reads its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainer.snapshots import loading, snapshot
from trainer.snapshots.archive import Archive
from trainer.snapshots.shards import CorruptError
from trainer.snapshots.snapshot import ForeignError, Manifest
from trainer.snapshots.state import State, Tensors
from trainer.world.distributed import World

Extras = dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A snapshot's verified contents."""

    manifest: Manifest
    tensors: Tensors
    extras: Extras


def newest(world: World, state: State, folder: Path, archive: Archive | None) -> Found | None:
    """The newest good snapshot that fits; what is damaged is passed over by all ranks alike.

    Args:
        world: all ranks.
        state: what it is for; it is not changed.
        folder: of the snapshots.
        archive: rank 0's.

    Raises:
        SnapshotError: this run's own snapshot is of another model, other data or another optimizer.
    """
    for manifest in _offers(world, archive):
        contents, problem = _try(world, state, folder / manifest.name, manifest)
        problems = world.share([told for told in world.gather(problem) if told])
        if not problems:
            tensors, extras = contents if state.sharded else _shared(world, contents)
            return Found(manifest=manifest, tensors=tensors, extras=extras)
        if archive:
            archive.pass_over(manifest, problems[0])
    return None


def _offers(world: World, archive: Archive | None) -> Iterator[Manifest]:
    """Rank 0's candidates, one after the other, on all ranks."""
    offers = archive.offers(resume=world.env.resume) if archive else iter(())
    while offer := world.share(list(islice(offers, 1))):
        yield offer[0]


def _try(world: World, state: State, path: Path, manifest: Manifest) -> tuple[tuple[Tensors, Extras], Exception | None]:
    """What this rank reads, or why it cannot."""
    if not (state.sharded or world.is_main):
        return ({}, {}), None
    try:
        with snapshot.open_shards(path, manifest) as opened:
            extras = {key: value for shard in opened for key, value in shard.extras.items()}
            if not state.sharded:
                return (loading.read_full(opened), extras), None
            tensors = state.like()
            loading.read_into(tensors, opened)
            return (tensors, extras), None
    except (CorruptError, ForeignError, OSError) as error:
        return ({}, {}), error


def _shared(world: World, contents: tuple[Tensors, Extras]) -> tuple[Tensors, Extras]:
    tensors, extras = contents
    return world.share_tensors(tensors), world.share(extras)
