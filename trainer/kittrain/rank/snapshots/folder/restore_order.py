"""Which in-memory copies may be resumed from, and in which order with the snapshots on disk. Pure.

A copy counts only while it continues the newest valid snapshot: what has been published is never undone, and of two
branches of a history the one that published last wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from kittrain.rank.snapshots.folder.ledger import first_divergence
from kittrain.rank.snapshots.folder.snapshot import Manifest


@dataclass(frozen=True, kw_only=True)
class RestorePoint:
    """A state to resume from.

    Attributes:
        manifest: with all shards.
        parent: the newest snapshot of this history.
        holders: the rank that holds each shard in memory; empty for a snapshot on disk.
    """

    manifest: Manifest
    parent: Manifest | None
    holders: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemoryShard:
    """One shard of an in-memory copy on one node; its manifest lists only this shard."""

    manifest: Manifest
    number: int


def complete_copies(held: Sequence[Iterable[MemoryShard]]) -> list[RestorePoint]:
    """The copies with all shards available, the newest first.

    Args:
        held: the shards on each rank's node.
    """
    found: dict[object, dict[int, tuple[int, MemoryShard]]] = {}
    for rank, shards in enumerate(held):
        for one in shards:
            known = found.setdefault(_identity(one.manifest), {})
            if one.number not in known or rank == one.number:  # the rank that wrote a shard reads it fastest
                known[one.number] = rank, one
    points = [_restore_point(known) for known in found.values() if _is_complete(known)]
    return sorted(points, key=lambda point: (point.manifest.generation, point.manifest.step), reverse=True)


def in_restore_order(snapshots: Iterable[Manifest], copies: Sequence[RestorePoint]) -> Iterator[RestorePoint]:
    """What to try, in order: before each snapshot the copies that continue it, the newest first.

    Args:
        snapshots: on disk, the newest first; the next one is requested only if those before could not be used.
        copies: in memory, the newest first.
    """
    left = list(copies)
    for snapshot in chain(snapshots, (None,)):
        for copy in [copy for copy in left if continues(copy.manifest, snapshot)]:
            left.remove(copy)
            yield replace(copy, parent=snapshot)
        if snapshot:
            yield RestorePoint(manifest=snapshot, parent=snapshot)


def continues(later: Manifest, earlier: Manifest | None) -> bool:
    """Whether a history contains all of another; None is the empty history."""
    return earlier is None or first_divergence(earlier.ledger, later.ledger) is None


def _identity(manifest: Manifest) -> object:
    """Equal for the shards of one copy."""
    return manifest.run, manifest.generation, manifest.step, manifest.world_size, manifest.cursor, manifest.ledger


def _is_complete(known: dict[int, tuple[int, MemoryShard]]) -> bool:
    _, any_of_them = next(iter(known.values()))
    return known.keys() == set(range(any_of_them.manifest.world_size))


def _restore_point(known: dict[int, tuple[int, MemoryShard]]) -> RestorePoint:
    ordered = [known[number] for number in range(len(known))]
    shards = tuple(one.manifest.shards[0] for _, one in ordered)
    _, first = ordered[0]
    return RestorePoint(
        manifest=replace(first.manifest, shards=shards), parent=None, holders=tuple(rank for rank, _ in ordered)
    )
