"""The stacks of a job's ranks, as nodes answered; ranks at the same place together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kitctl.base.errors import TargetError
from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.stacks import RankStack, StackFrame

NO_RANKS: Final = "no rank runs: the node starts, ends, or waits for others"


@dataclass(frozen=True, kw_only=True)
class NodeStacks:
    """What one node answered; ``note`` is why it did not, or empty."""

    node: int
    ranks: tuple[RankStack, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Ranks whose main threads have the same stack, with their nodes; the first stands for all."""

    ranks: tuple[tuple[int, RankStack], ...]

    @property
    def first(self) -> RankStack:
        """Its stack."""
        return self.ranks[0][1]


def of_nodes(nodes: Sequence[int], printed: bytes) -> list[NodeStacks]:
    """What ``kittrain.agent.inside.stacks`` printed of nodes, in their order.

    Raises:
        TargetError: it is not that.
    """
    try:
        found: list[tuple[RankStack, ...]] = typed.load(list[tuple[RankStack, ...]], printed)
    except MalformedError as error:
        raise TargetError(f"an answer of unknown form: {error}", fix="its trainer needs kitctl's version") from error
    answered = zip(nodes, found, strict=False)
    return [NodeStacks(node=node, ranks=ranks, note="" if ranks else NO_RANKS) for node, ranks in answered]


def places(nodes: Sequence[NodeStacks]) -> list[Place]:
    """The places where ranks are, the rarest first: a rank that hangs alone is the one to look at."""
    found: dict[object, list[tuple[int, RankStack]]] = {}
    for node in nodes:
        for one in node.ranks:
            found.setdefault((one.note, one.phase, main_frames(one) or one.rank), []).append((node.node, one))
    made = [Place(ranks=tuple(sorted(some, key=lambda pair: pair[1].rank))) for some in found.values()]
    return sorted(made, key=lambda place: (len(place.ranks), place.first.rank))


def main_frames(one: RankStack) -> tuple[StackFrame, ...]:
    """The main thread's frames, the innermost first; none if it has no stack."""
    return next((thread.frames for thread in one.threads if thread.main), ())


def only(nodes: Sequence[NodeStacks], ranks: frozenset[int]) -> list[NodeStacks]:
    """Only some ranks; empty: all."""
    if not ranks:
        return [*nodes]
    kept = [replace(one, ranks=tuple(rank for rank in one.ranks if rank.rank in ranks)) for one in nodes]
    return [one for one in kept if one.ranks or one.note]
