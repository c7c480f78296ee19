"""Which node keeps a copy of which shard, so that any one node, or machine, may be lost. Pure.

Only who holds what now decides, not who wrote it: so the same rule serves a job that shrinks, grows or has lost a node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kittrain.rank.snapshots.folder.held import Spread

COPIES: Final = 2  # of each shard, the one that its rank has written included


@dataclass(frozen=True, kw_only=True)
class Place:
    """A node that can keep copies.

    Attributes:
        node: its index.
        host: the machine that it runs on.
        address: of its process that serves copies, as ``address:port``.
    """

    node: int
    host: str
    address: str


def wanted(ring: Sequence[Place], copies: int = COPIES) -> int:
    """How many copies there can be: fewer than asked for if there are fewer nodes."""
    return min(copies, len(ring))


def count(snapshot: Spread, ring: Sequence[Place], copies: int = COPIES) -> int:
    """Of how many nodes, or machines if there are enough of these, all may hold the shard with the fewest copies."""
    unit = _units(ring, copies)
    found = (len({unit[one] for one in holders if one in unit}) for holders in snapshot.holders)
    return min((*found, wanted(ring, copies)))


def lacking(snapshot: Spread, ring: Sequence[Place], copies: int = COPIES) -> Mapping[int, list[int]]:
    """The shards that each node should fetch so that there are enough copies, by node.

    A shard goes to the next places after the last that holds it: so each node keeps the shards of one other.

    Args:
        snapshot: each of its shards is held by a node of the ring.
        ring: the nodes, in the order of their ranks.
        copies: see ``COPIES``.
    """
    unit, position = _units(ring, copies), {place.node: number for number, place in enumerate(ring)}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for number, holders in enumerate(snapshot.holders):
        here = [one for one in holders if one in unit]
        if not here:
            continue
        covered = {unit[one] for one in here}
        last = max(position[one] for one in here)
        for offset in range(1, len(ring) + 1):
            if len(covered) >= wanted(ring, copies):
                break
            place = ring[(last + offset) % len(ring)]
            if unit[place.node] not in covered:
                covered.add(unit[place.node])
                found[place.node].append(number)
    return found


def _units(ring: Sequence[Place], copies: int) -> dict[int, object]:
    """What may be lost at once, by node: its machine, if there are enough of them; else the node itself."""
    enough = len({place.host for place in ring}) >= wanted(ring, copies)
    return {place.node: place.host if enough else place.node for place in ring}
