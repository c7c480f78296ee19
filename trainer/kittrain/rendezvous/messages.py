"""What nodes and the hub tell each other: a type for each message, by its name, and the bounds of what it holds.

A message is a line of JSON with its name under ``say``. What is of no known name, or not of its type, is no message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from kittrain.outcome.termination import Ending
from kittrain.rendezvous.diagnosis import Account
from kittrain.system import typed
from kittrain.system.decoders import MalformedError

Count = Annotated[int, lambda number: number >= 0]
Port = Annotated[int, lambda number: 0 < number < 1 << 16]
Finite = Annotated[float, math.isfinite]
Tempo = Mapping[int, tuple[Count, Finite]]


class Message:
    """What is told; each of its types is a row of one of the tables below."""


# -- from a node to the hub


@dataclass(frozen=True, kw_only=True)
class Hello(Message):
    """Who it is: the first message, once."""

    node: Count
    born: Finite
    pod: str


@dataclass(frozen=True, kw_only=True)
class Join(Message):
    """Ready for a round: where its first rank's store would listen, and the last round that it took part in."""

    address: str
    port: Port
    round: Count
    size: Count


@dataclass(frozen=True, kw_only=True)
class Drain(Message):
    """It was told to leave, and so are its ranks."""


@dataclass(frozen=True, kw_only=True)
class End(Message):
    """Its ranks are no more."""

    lost: bool


@dataclass(frozen=True, kw_only=True)
class Done(Message):
    """Its ranks have succeeded."""


@dataclass(frozen=True, kw_only=True)
class Set(Message):
    """What it tells the other nodes of the round."""

    values: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Get(Message):
    """What it wants to know from them."""

    keys: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Pulse(Message):
    """How its ranks are, every few seconds: whether all stand still, whether one is stopped, how fast each is."""

    stalled: bool
    frozen: bool
    tempo: Tempo


@dataclass(frozen=True, kw_only=True)
class Accounts(Message):
    """Where its ranks stand."""

    ranks: Sequence[Account]


@dataclass(frozen=True, kw_only=True)
class Alive(Message):
    """There was nothing else to say for a while."""


@dataclass(frozen=True, kw_only=True)
class Fail(Message):
    """It fails for good, and the job with it."""

    ending: Ending


# -- from the hub to a node


@dataclass(frozen=True, kw_only=True)
class Round(Message):
    """Its place in a round, and where the ranks' store is."""

    number: Count
    rank: Count
    size: Count
    address: str
    port: Port


@dataclass(frozen=True, kw_only=True)
class Over(Message):
    """The round is over; if it hung, with the rank that kept the others waiting, and the steps it had finished."""

    lost: bool
    reason: str
    culprit: tuple[Count, Count] | None = None


@dataclass(frozen=True, kw_only=True)
class Values(Message):
    """What it wanted to know, in that order."""

    values: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Finished(Message):
    """The ranks of all nodes have succeeded."""


@dataclass(frozen=True, kw_only=True)
class Refused(Message):
    """It cannot take part."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Explain(Message):
    """Where do your ranks stand?"""


@dataclass(frozen=True, kw_only=True)
class Paces(Message):
    """To the first node of a round: how fast all ranks are, by rank."""

    busy: Mapping[int, Finite]
    slow: Mapping[int, Finite]


@dataclass(frozen=True, kw_only=True)
class Failed(Message):
    """Another node has failed for good."""

    ending: Ending


@dataclass(frozen=True, kw_only=True)
class Told(Message):
    """To a node that fails for good: all have heard."""


Table = Mapping[str, type[Message]]
NODES: Final[Table] = {
    kind.__name__.lower(): kind for kind in (Hello, Join, Drain, End, Done, Set, Get, Pulse, Accounts, Alive, Fail)
}
HUBS: Final[Table] = {
    kind.__name__.lower(): kind for kind in (Round, Over, Values, Finished, Refused, Explain, Paces, Failed, Told)
}


def dump(message: Message) -> bytes:
    """A message as a line without its end."""
    return typed.JSON.encode({"say": type(message).__name__.lower(), **typed.encode(message)}).encode()


def load(table: Table, text: bytes) -> Message:
    """The message that a line holds.

    Raises:
        MalformedError: it is none of the table's.
    """
    told = typed.parse(text)
    say = told.pop("say", None) if isinstance(told, dict) else None
    if not isinstance(say, str) or say not in table:
        raise MalformedError(f"not one of {', '.join(table)}")
    message: Message = typed.decode(table[say], told)
    return message
