"""What the processes that keep copies say to each other, and what their agent tells them."""

from __future__ import annotations

from dataclasses import dataclass

from kittrain.rank.snapshots.folder.held import Held
from kittrain.rank.snapshots.peers.directory import Ends, Plan
from kittrain.rank.snapshots.peers.placement import Place


@dataclass(frozen=True, kw_only=True)
class Round:
    """The agent: a round of the ranks has begun.

    Attributes:
        number: it grows.
        places: of the nodes, in the order of their ranks; the first has the directory.
    """

    number: int
    places: tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A process to another one: what its node holds, or which file it wants; a file's content follows the answer.

    Attributes:
        round: of the ranks, if it tells what it holds.
        ends: whether nothing more is published there, so that this node may end, or stay, as the job does.
        name: of the snapshot that it wants a file of; empty: it tells what it holds.
        file: its name.
    """

    node: int
    round: int = 0
    held: tuple[Held, ...] = ()
    ends: Ends = ""
    name: str = ""
    digest: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The reply.

    Attributes:
        plan: None: this node has no directory, or one of another round.
        round: of the directory; 0: there is none.
        size: of the file that follows; None: it is not here.
    """

    plan: Plan | None = None
    round: int = 0
    size: int | None = None
