"""Knows what all nodes hold, and tells each what to fetch and what it may delete. Pure; one node's process has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kittrain.rank.snapshots.folder.held import Held, SnapshotId, Spread, complete, spread
from kittrain.rank.snapshots.peers.placement import Place, count, lacking, wanted

Ends = Literal["", "node", "job"]  # what ends: the node at least, or all of them, as training has
STANDBYS: Final = 2  # nodes that stay with the one that uploads what is nowhere else: as many may be lost, one by one
GONE: Final = 3.0  # seconds without a word after which a node counts as lost
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
        gathered: whether the nodes that are to hold all shards have those of the newest, or there is no such node.
        stays: whether the node is to stay even then, since it takes over the upload if others are lost.
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
    stays: bool = False
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
        ending: when it began to end, with what is nowhere else: others stay until it is uploaded. None: it has not.
        released: whether it is uploaded, or given up.
    """

    round: int
    ring: Sequence[Place]
    whole: int | None = None
    ending: float | None = None
    released: bool = False
    _held: dict[int, Sequence[Held]] = field(default_factory=dict)
    _heard: dict[int, float] = field(default_factory=dict)
    _stays: dict[int, bool] = field(default_factory=dict)  # nodes that end, and whether they were told to stay last

    def tell(self, node: int, held: Sequence[Held], *, now: float = 0.0, ends: Ends = "") -> Plan:
        """Take what a node holds, and whether it ends; returns what it is to do."""
        if all(place.node != node for place in self.ring):
            return Plan(round=self.round)
        self._held[node], self._heard[node] = held, now
        if ends:
            self._stays.setdefault(node, True)
        ring = self._present(now)
        known = spread({place.node: self._held.get(place.node, ()) for place in ring})
        snapshots = complete(known)
        target = wanted(ring)
        early = ends == "job" and self.ending is None  # this one is about to end, too
        if any(place.node not in self._held for place in ring):
            step = snapshots[0].step if snapshots else None
            return Plan(round=self.round, wanted=target, step=step, stays=early)
        enough = next((one for one in snapshots if count(one, ring) >= target), None)
        lost = _lost(known, enough)
        if not snapshots:
            return Plan(round=self.round, wanted=target, lost=lost, stays=early)
        all_of_it = self._hold_all(ring)
        needed = {node} if node == self.whole else all_of_it
        stays = (early or node in all_of_it) and node != self.whole and not self.released
        if node in self._stays:
            self._stays[node] = stays
        newest = snapshots[0]  # an older one is replaced by the time that it would be copied
        return Plan(
            round=self.round,
            lost=lost,
            behind=len([one for one in snapshots if enough is None or one.key > enough.key]) > LEFT,
            step=newest.step,
            have=count(newest, ring),
            wanted=target,
            name=newest.name,
            digest=newest.digest,
            tasks=self._tasks(newest, node, ring, all_of_it),
            gathered=needed <= set.intersection(*map(set, newest.holders)),
            stays=stays,
            copied=SnapshotId(step=enough.step, generation=enough.generation, digest=enough.digest) if enough else None,
        )

    def waits(self, now: float) -> bool:
        """Whether a node that stays has yet to be told that it may end."""
        return any(self._stays.get(place.node) for place in self._present(now) if place.node != self.whole)

    def _present(self, now: float) -> Sequence[Place]:
        """The nodes that are there: at the end none that is lost comes back."""
        since = self.ending
        if since is None:
            return self.ring
        return [place for place in self.ring if now - max(self._heard.get(place.node, since), since) <= GONE]

    def _hold_all(self, ring: Sequence[Place]) -> set[int]:
        """The nodes that are to hold all shards: the one that uploads, and at the end the next ones."""
        if self.whole is None:
            return set()
        next_ones = [place.node for place in ring if place.node in self._stays and place.node != self.whole]
        return {self.whole, *(next_ones[:STANDBYS] if self.ending is not None else ())}

    def _tasks(self, newest: Spread, node: int, ring: Sequence[Place], all_of_it: set[int]) -> tuple[Task, ...]:
        numbers = set(lacking(newest, ring).get(node, ()))
        if node in all_of_it:
            numbers |= {number for number, holders in enumerate(newest.holders) if node not in holders}
        address = {place.node: place.address for place in ring}
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
