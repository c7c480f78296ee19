"""The messages between nodes and the hub: a dataclass for each, and bounds on its values.

A message is a line of JSON with the name of its class under ``type``. An unknown type or a wrong field is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.agent.rendezvous.diagnosis import RankStatus
from kittrain.agent.rendezvous.resumes import Resume
from kittrain.agent.rendezvous.succession import Configuration
from kittrain.outcome.termination import Ending
from kittrain.system.sample_orders import SampleOrder

Count = Annotated[int, lambda number: number >= 0]
Port = Annotated[int, lambda number: 0 < number < 1 << 16]
Finite = Annotated[float, math.isfinite]
Progress = Mapping[int, tuple[Count, Finite]]  # by rank: finished steps, and the busy seconds in all of them


class Message:
    """A message; each class is in one of the two tables below."""


# -- from a node to the hub


@dataclass(frozen=True, kw_only=True)
class Hello(Message):
    """Which node this is: the first message, sent once."""

    node: Count
    started_at: Finite
    first: bool  # this agent has not been connected before
    pod: str


@dataclass(frozen=True, kw_only=True)
class Join(Message):
    """Ready for a round: where its first rank's store and its own hub would listen, and what it knows of the last one.

    ``place`` is its group rank in that, ``gone`` nodes that have ended since, ``coming`` those that a hub which
    ended has sent here.
    """

    address: str
    port: Port
    hub_port: Count = 0
    known: Sequence[Configuration] = ()
    place: Count | None = None
    gone: Sequence[Count] = ()
    coming: Sequence[Count] = ()


@dataclass(frozen=True, kw_only=True)
class Drain(Message):
    """The node was asked to stop, and has asked its ranks."""


@dataclass(frozen=True, kw_only=True)
class Leave(Message):
    """Its ranks have stopped after a drain, and its agent ends; to its own hub, which ends with it."""


@dataclass(frozen=True, kw_only=True)
class EndRound(Message):
    """Its ranks have stopped: because they failed (``lost``), or in agreement.

    ``waited``: milliseconds in a collective that timed out; 0: none did.
    """

    lost: bool
    waited: Count = 0


@dataclass(frozen=True, kw_only=True)
class Done(Message):
    """Its ranks have succeeded."""


@dataclass(frozen=True, kw_only=True)
class Set(Message):
    """Set keys of the round's store."""

    values: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Get(Message):
    """Request keys of the round's store."""

    keys: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Message):
    """State of its ranks, every few seconds: whether all are stalled, whether one is frozen, and their progress.

    ``quiet``: none has taken a step for unusually long, which is no judgement.
    """

    stalled: bool
    frozen: bool
    progress: Progress
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class StackReport(Message):
    """The status of its ranks, as the hub requested."""

    ranks: Sequence[RankStatus]


@dataclass(frozen=True, kw_only=True)
class Look(Message):
    """Where its ranks are, as the hub asked."""

    ranks: Sequence[RankStatus]


@dataclass(frozen=True, kw_only=True)
class OwnAlone(Message):
    """How many of its ranks train a model of their own, whenever that changes."""

    ranks: Count


@dataclass(frozen=True, kw_only=True)
class OwnResume(Message):
    """From what its ranks have gone on, once that is known."""

    resume: Resume


@dataclass(frozen=True, kw_only=True)
class OwnSave(Message):
    """One of its ranks has saved a checkpoint to the node's own folder, for the first time in a round."""


@dataclass(frozen=True, kw_only=True)
class OwnOrders(Message):
    """In which order its ranks train on samples, once that is known of all: the first rank's of each kind."""

    orders: Sequence[SampleOrder]


@dataclass(frozen=True, kw_only=True)
class KeepAlive(Message):
    """There was nothing else to send for a while."""


@dataclass(frozen=True, kw_only=True)
class Serves(Message):
    """From another hub, as its first message: it serves the nodes that decide after this round, at this address."""

    address: str
    round: Count


@dataclass(frozen=True, kw_only=True)
class Fail(Message):
    """The node fails permanently, and the job with it."""

    ending: Ending


# -- from the hub to a node


@dataclass(frozen=True, kw_only=True)
class Round(Message):
    """Its group rank in a new round, and where the ranks' store is."""

    number: Count
    rank: Count
    size: Count
    address: str
    port: Port


@dataclass(frozen=True, kw_only=True)
class Succession(Message):
    """Before a round, and to nodes that stand by: who decides what follows it, and where their hubs would listen.

    ``successors`` are some nodes in the order in which their hubs take over, as ``index address:port``.
    """

    known: Sequence[Configuration]
    successors: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Moved(Message):
    """Another hub serves, at ``address:port``."""

    address: str


@dataclass(frozen=True, kw_only=True)
class HandOver(Message):
    """This hub ends, and the next round is formed at another one, ``address:port``.

    ``gone`` are nodes of the last round that have ended, ``coming`` those that are sent there.
    """

    address: str
    gone: Sequence[Count] = ()
    coming: Sequence[Count] = ()


@dataclass(frozen=True, kw_only=True)
class HandedOver(Message):
    """To the node that leaves: nobody needs this hub any more."""


@dataclass(frozen=True, kw_only=True)
class NoQuorum(Message):
    """The nodes that are here may not form a round: try elsewhere."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class RoundEnded(Message):
    """The round has ended; after a hang, with the rank that blocked the others and the steps that it had finished."""

    lost: bool
    reason: str
    culprit: tuple[Count, Count] | None = None


@dataclass(frozen=True, kw_only=True)
class Values(Message):
    """The values of the requested keys, in their order; ``time`` is the hub's clock, in Unix seconds.

    ``settled``: all nodes of the round have been told of it.
    """

    values: Sequence[str]
    time: float = 0.0
    settled: bool = False


@dataclass(frozen=True, kw_only=True)
class JobFinished(Message):
    """The ranks of all nodes have succeeded."""


@dataclass(frozen=True, kw_only=True)
class Rejected(Message):
    """The node cannot take part."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class RequestStacks(Message):
    """Request for a :class:`StackReport`."""


@dataclass(frozen=True, kw_only=True)
class RequestLook(Message):
    """Request for a :class:`Look`: no step is taken, which may be as it should."""


@dataclass(frozen=True, kw_only=True)
class StandsStill(Message):
    """To the first node of a round: for how many seconds no rank has taken a step, and what they do; empty: they do."""

    seconds: Finite
    what: str


@dataclass(frozen=True, kw_only=True)
class StepTimings(Message):
    """To the first node of a round: busy seconds of a step by rank, and the stragglers."""

    busy: Mapping[int, Finite]
    slow: Mapping[int, Finite]


@dataclass(frozen=True, kw_only=True)
class AllAlone(Message):
    """To the first node of a round: how many ranks of all nodes train a model of their own, whenever that changes."""

    ranks: Count


@dataclass(frozen=True, kw_only=True)
class AllResumes(Message):
    """To the first node of a round: from what the nodes' ranks have gone on, where that is not the same."""

    resumes: Sequence[Resume]


@dataclass(frozen=True, kw_only=True)
class AllSaved(Message):
    """To all nodes of a round: each of them has a checkpoint of its own."""


@dataclass(frozen=True, kw_only=True)
class AllOrders(Message):
    """To the first node of a round: in which order the nodes' ranks train on samples, where that is not the same."""

    orders: Sequence[SampleOrder]


@dataclass(frozen=True, kw_only=True)
class StandBy(Message):
    """To a node that is ready: the round is full without it, and it may take the place of one that is lost."""


@dataclass(frozen=True, kw_only=True)
class Spares(Message):
    """To the first node of a round: the nodes that stand by, whenever that changes."""

    nodes: Sequence[Count]


@dataclass(frozen=True, kw_only=True)
class JobFailed(Message):
    """Another node has failed permanently."""

    ending: Ending


@dataclass(frozen=True, kw_only=True)
class FailureSeen(Message):
    """To a node that fails permanently: all others know."""


Table = Mapping[str, type[Message]]
FROM_NODES: Final[Table] = {
    kind.__name__: kind
    for kind in (
        *(Hello, Join, Drain, EndRound, Done, Set, Get, Heartbeat, StackReport, Look),
        *(OwnAlone, OwnResume, OwnSave, OwnOrders, KeepAlive, Fail, Serves, Leave),
    )
}
FROM_HUB: Final[Table] = {
    kind.__name__: kind
    for kind in (
        Round,
        Succession,
        Moved,
        HandOver,
        HandedOver,
        NoQuorum,
        RoundEnded,
        Values,
        JobFinished,
        Rejected,
        RequestStacks,
        RequestLook,
        StandsStill,
        StepTimings,
        AllAlone,
        AllResumes,
        AllSaved,
        AllOrders,
        StandBy,
        Spares,
        JobFailed,
        FailureSeen,
    )
}


def dump(message: Message) -> bytes:
    """A message as a line, without its newline."""
    return typed.JSON.encode({"type": type(message).__name__, **typed.encode(message)}).encode()


def load(table: Table, text: bytes) -> Message:
    """The message in a line.

    Raises:
        MalformedError: it is none of the table's.
    """
    fields = typed.parse(text)
    name = fields.pop("type", None) if isinstance(fields, dict) else None
    if not isinstance(name, str) or name not in table:
        raise MalformedError(f"not one of {', '.join(table)}")
    message: Message = typed.decode(table[name], fields)
    return message
