"""What nodes tell each other as they form a round, and what the first of them makes of it for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kitjob import typed
from kitjob.record import Record
from kitjob.report import NodeAssignment, PastFailure
from kittrain.agent.report.departures import departure
from kittrain.agent.report.observed import Store
from kittrain.agent.report.steps_taken import LONGEST, Mark, last_step

AGREED: Final = "kit/round"  # a key of the round's store


class Known(Record):
    """What a node has seen of the rounds before.

    Attributes:
        index: of the node.
        assignment: its part in the new round.
        round: the number of the last one that it was in; 0: none.
        restarts: of the ranks, after failures.
        failures: the last ones, of any node.
        departures: how its ranks left the last round, as ``Departures.facts``.
        loaded: when the newest file that a rank went on from was last changed, in nanoseconds.
        taken: ``StepsTaken.marks``.
        saves: ``StepsTaken.saves``.
        saved: whether the script was seen to save a checkpoint here.
        reached: the last reported step of the library's loop, if the node led the last round; else 0.
        finished: the last step of it that each of its ranks has finished in the last round; 0: none.
        copies: where others reach the copies that it keeps; empty: it keeps none.
    """

    index: int
    assignment: NodeAssignment
    round: int
    restarts: int
    failures: tuple[PastFailure, ...]
    departures: Mapping[str, Any]
    loaded: int
    taken: tuple[Mark, ...]
    saves: tuple[Mark, ...]
    saved: bool
    reached: int
    finished: int
    copies: str


class Agreed(Record):
    """What holds for all nodes of a round.

    Attributes:
        round: its number.
        restarts: the most that a node knows.
        departed: the failure that explains how the last round ended, if a rank's leaving did: its fields.
        loaded: the newest.
        taken: by the node that has seen the most steps.
        saves: of all nodes.
        may_save: whether the script may have saved a checkpoint: a node has seen it, or is gone.
        reached: the last step of the library's loop; 0: no node knows it, as all that have seen one are gone.
        elsewhere: where a rank was as it lost others in the last round, as ``Departures.elsewhere``.
        places: of the nodes that keep copies, in the order of their ranks: ``node``, ``host`` and ``address``.
    """

    round: int
    restarts: int
    departed: Mapping[str, Any] | None
    loaded: int
    taken: tuple[Mark, ...]
    saves: tuple[Mark, ...]
    may_save: bool
    reached: int
    elsewhere: str
    places: tuple[Mapping[str, Any], ...]


def agree(store: Store, known: Known, *, rank: int, size: int) -> tuple[Agreed, Sequence[Known]]:
    """Exchange what is known; returns what holds for all, and on the first node what each has told.

    Args:
        store: of the round.
        known: by this node.
        rank: of this node among all.
        size: the number of nodes.

    Raises:
        torch.distributed.DistError: the store or another node is lost.
    """
    store.set(_key(rank), typed.dump(known).decode())
    told: list[Known] = []
    if rank == 0:
        told = [typed.load(Known, text) for text in store.multi_get([_key(one) for one in range(size)])]
        store.set(AGREED, typed.dump(combined(told)).decode())
    return typed.load(Agreed, store.get(AGREED)), told


def combined(nodes: Sequence[Known]) -> Agreed:
    """What follows from what all nodes of a round have told, in the order of their ranks.

    The round's number grows even if the store is new. It restarts only if no node of the round before is left.
    """
    last = max(one.round for one in nodes)
    members = [one for one in nodes if one.round == last]
    finished = [one.finished for one in members if one.finished]
    gone = any(one.departures.get("size") != len(members) for one in members)
    return Agreed(
        round=1 + last,
        restarts=max(one.restarts for one in nodes),
        departed=departure([one.departures for one in nodes]),
        loaded=max(one.loaded for one in nodes),
        taken=max((one.taken for one in nodes), key=last_step),
        saves=tuple(sorted({save for one in nodes for save in one.saves})[-LONGEST:]),
        may_save=gone or any(one.saved for one in nodes),
        reached=max(*(one.reached for one in nodes), min(finished, default=0)),
        elsewhere=next((said for one in members if (said := one.departures.get("elsewhere", ""))), ""),
        places=tuple(
            {"node": one.index, "host": one.assignment.host, "address": one.copies} for one in nodes if one.copies
        ),
    )


def _key(rank: int) -> str:
    return f"kit/node/{rank}"
