"""Which copies in main memory may be gone on from, and in which order with the snapshots on disk. Pure.

A copy counts only while it continues the newest snapshot that is good: what has been published is never undone, and
of two branches of a history the one that published last goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from kittrain.snapshots.ledger import parting
from kittrain.snapshots.snapshot import Manifest


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What could be gone on from.

    Attributes:
        manifest: with all shards.
        parent: the newest snapshot of this history.
        holders: the rank that holds each shard in memory; none for a snapshot on disk.
    """

    manifest: Manifest
    parent: Manifest | None
    holders: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Held:
    """One shard of a copy, as its node holds it: its manifest has this shard alone."""

    manifest: Manifest
    number: int


def whole(held: Sequence[Iterable[Held]]) -> list[Offer]:
    """The copies of which every shard is held somewhere, the newest first.

    Args:
        held: by each rank's node.
    """
    found: dict[object, dict[int, tuple[int, Held]]] = {}
    for rank, shards in enumerate(held):
        for one in shards:
            known = found.setdefault(_identity(one.manifest), {})
            if one.number not in known or rank == one.number:  # a rank that wrote it reads it fastest
                known[one.number] = rank, one
    offers = [_offer(known) for known in found.values() if _is_whole(known)]
    return sorted(offers, key=lambda offer: (offer.manifest.generation, offer.manifest.step), reverse=True)


def in_order(snapshots: Iterable[Manifest], copies: Sequence[Offer]) -> Iterator[Offer]:
    """What to try, one after the other: before each snapshot the copies that continue it, the newest first.

    Args:
        snapshots: on disk, the newest first; the next one is asked for when those before could not be used.
        copies: in memory, the newest first.
    """
    left = list(copies)
    for snapshot in chain(snapshots, (None,)):
        for copy in [copy for copy in left if continues(copy.manifest, snapshot)]:
            left.remove(copy)
            yield replace(copy, parent=snapshot)
        if snapshot:
            yield Offer(manifest=snapshot, parent=snapshot)


def continues(later: Manifest, earlier: Manifest | None) -> bool:
    """Whether a history holds all of another one; all of them begin with nothing."""
    return earlier is None or parting(earlier.ledger, later.ledger) is None


def _identity(manifest: Manifest) -> object:
    """Equal for the shards of one copy."""
    return manifest.run, manifest.generation, manifest.step, manifest.world_size, manifest.cursor, manifest.ledger


def _is_whole(known: dict[int, tuple[int, Held]]) -> bool:
    _, any_of_them = next(iter(known.values()))
    return known.keys() == set(range(any_of_them.manifest.world_size))


def _offer(known: dict[int, tuple[int, Held]]) -> Offer:
    ordered = [known[number] for number in range(len(known))]
    shards = tuple(one.manifest.shards[0] for _, one in ordered)
    _, first = ordered[0]
    return Offer(
        manifest=replace(first.manifest, shards=shards), parent=None, holders=tuple(rank for rank, _ in ordered)
    )
