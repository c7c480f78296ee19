"""Decides which nodes may form the next round: a majority of the last one, so that never two of a number train.

A round is to the next what a configuration is to Raft: its nodes decide what follows. Each node of a round is told its
configuration before any rank starts, and tells it to whichever hub it joins. A hub that has lost a round, or another
one in its place, may form the next if more than half of that configuration's nodes have come to it. Of two equal
halves the one goes on that creates a file which must not exist, in the folder that they share.

While not all nodes of a round are known to have heard of it (it is not settled), some may still follow the
configuration before it: then both have to agree. A node that is known to have ended in that round has no vote, nor has
one that has replaced it: what another has decided may have ended with it.

Pure. Why: decision 59.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated


def is_ranges(text: str) -> bool:
    """Whether a text is ascending ranges of node indices."""
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", text, re.ASCII):
        return False
    ends = [int(number) for number in re.split("[-,]", text)]
    return all(one < other for one, other in pairwise(ends))


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The nodes of a round.

    Attributes:
        number: of the round.
        members: indices of its nodes, as ranges: ``0-2,5``.
    """

    number: Annotated[int, lambda number: number > 0]
    members: Annotated[str, is_ranges]

    @property
    def nodes(self) -> frozenset[int]:
        """The indices."""
        return _indices(self.members)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the nodes that are here may form the next round.

    Attributes:
        granted: they may.
        ties: numbers of the rounds of which exactly half is here, so that a claim would decide; empty if it would not.
        reason: why they may not.
    """

    granted: bool
    ties: tuple[int, ...] = ()
    reason: str = ""


Known = tuple[Configuration, ...]  # the last round's, and those before it that may still decide; the newest first


def configuration(number: int, nodes: Iterable[int]) -> Configuration:
    """The configuration of a round."""
    spans: list[list[int]] = []
    for node in sorted(nodes):
        if spans and spans[-1][1] == node - 1:
            spans[-1][1] = node
        else:
            spans.append([node, node])
    return Configuration(number=number, members=",".join(f"{a}-{b}" if a < b else str(a) for a, b in spans))


def newest(one: Sequence[Configuration], other: Sequence[Configuration]) -> Known:
    """What is known of the last round by two that tell it.

    Of two hubs that have formed a round of the same number, only one can have settled it.
    """
    numbers = [known[0].number if known else 0 for known in (one, other)]
    if numbers[0] != numbers[1]:
        return tuple(one if numbers[0] > numbers[1] else other)
    settled = [known for known in (one, other) if len(known) == 1]
    return tuple(settled[0]) if settled else tuple(dict.fromkeys((*one, *other)))


def verdict(known: Known, *, here: AbstractSet[int], ended: Mapping[int, int], claimed: AbstractSet[int]) -> Verdict:
    """Whether nodes may form the round after the last one.

    Args:
        known: of the last round.
        here: nodes that have come, and were there before.
        ended: nodes that are known to have ended, each with the number of the last round before that.
        claimed: numbers of the rounds that this hub has claimed.
    """
    ties = []
    for one in known:
        living = {node for node in one.nodes if ended.get(node, -1) < one.number}
        present = len(living & here)
        if living and 2 * present < len(living):
            return Verdict(granted=False, reason=_too_few(present, len(living), one.number))
        if living and 2 * present == len(living) and one.number not in claimed:
            ties.append(one.number)
    if ties:
        half = _too_few(len(known[0].nodes & here), len(known[0].nodes), known[0].number)
        return Verdict(granted=False, ties=tuple(ties), reason=half)
    return Verdict(granted=True)


def _too_few(present: int, living: int, number: int) -> str:
    return f"only {present} of the {living} nodes of round {number} are here, and the others may train without them"


@lru_cache(64)
def _indices(members: str) -> frozenset[int]:
    found: set[int] = set()
    for span in filter(None, members.split(",")):
        first, _, last = span.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
