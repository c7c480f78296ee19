"""Knows what all nodes hold, and tells each what to fetch and what it may delete. Pure; one node's process has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kittrain.rank.snapshots.folder.held import Held, SnapshotId, Spread, complete, spread
from kittrain.rank.snapshots.peers.placement import Place, count, lacking, wanted

LEFT: Final = 3  # snapshots that may wait for shards, or for copies: more would fill a disk where a node fails


@dataclass(frozen=True, kw_only=True)
class Task:
    """A shard to fetch, and the addresses of those that hold it."""

    number: int
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a node is told.

    Attributes:
        round: of the ranks, in which it is valid.
        step: of the newest snapshot of which all shards are there; None: there is none.
        have: copies of that one's shard with the fewest.
        wanted: copies that there should be.
        name: of the snapshot to fetch from, and digest of its manifest.
        tasks: what to fetch of it.
        gathered: whether the node that is to hold all shards has those of the newest, or there is no such node.
        copied: the newest that has all its copies: it may not be deleted; whatever is older and has expired may.
        lost: older ones, by name and digest, that lack shards: nothing can be made of them.
        behind: copies do not keep up, so that not all that is newer than ``copied`` can stay.
    """

    round: int
    step: int | None = None
    have: int = 0
    wanted: int = 0
    name: str = ""
    digest: str = ""
    tasks: tuple[Task, ...] = ()
    gathered: bool = False
    copied: SnapshotId | None = None
    lost: tuple[tuple[str, str], ...] = ()
    behind: bool = False


@dataclass
class Directory:
    """What the nodes of one round hold, as they have told it.

    Attributes:
        round: of the ranks.
        ring: its nodes, in the order of their ranks.
        whole: a node that is to hold all shards, as for a mirror; None: there is none.
    """

    round: int
    ring: Sequence[Place]
    whole: int | None = None
    _held: dict[int, Sequence[Held]] = field(default_factory=dict)

    def tell(self, node: int, held: Sequence[Held]) -> Plan:
        """Take what a node holds; returns what it is to do."""
        if all(place.node != node for place in self.ring):
            return Plan(round=self.round)
        self._held[node] = held
        known = spread(self._held)
        snapshots = complete(known)
        target = wanted(self.ring)
        if len(self._held) < len(self.ring):
            return Plan(round=self.round, wanted=target, step=snapshots[0].step if snapshots else None)
        enough = next((one for one in snapshots if count(one, self.ring) >= target), None)
        lost = _lost(known, enough)
        if not snapshots:
            return Plan(round=self.round, wanted=target, lost=lost)
        newest = snapshots[0]  # an older one is replaced by the time that it would be copied
        return Plan(
            round=self.round,
            lost=lost,
            behind=len([one for one in snapshots if enough is None or one.key > enough.key]) > LEFT,
            step=newest.step,
            have=count(newest, self.ring),
            wanted=target,
            name=newest.name,
            digest=newest.digest,
            tasks=self._tasks(newest, node),
            gathered=self.whole is None or all(self.whole in holders for holders in newest.holders),
            copied=SnapshotId(step=enough.step, generation=enough.generation, digest=enough.digest) if enough else None,
        )

    def _tasks(self, newest: Spread, node: int) -> tuple[Task, ...]:
        numbers = set(lacking(newest, self.ring).get(node, ()))
        if node == self.whole:
            numbers |= {number for number, holders in enumerate(newest.holders) if node not in holders}
        address = {place.node: place.address for place in self.ring}
        return tuple(
            Task(number=number, sources=tuple(address[one] for one in newest.holders[number] if one != node))
            for number in sorted(numbers)
        )


def _lost(known: Sequence[Spread], enough: Spread | None) -> tuple[tuple[str, str], ...]:
    """The snapshots that lack shards, and get them no more: a newer one is safe, or several were taken since."""
    return tuple(
        (one.name, one.digest)
        for number, one in enumerate(known)
        if one.missing and (number >= LEFT or (enough and one.key < enough.key))
    )
