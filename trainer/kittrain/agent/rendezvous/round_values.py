"""The hub's side of a round's key-value store: keys that are set once, and requests that wait for them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kittrain.agent.rendezvous.membership import Node
from kittrain.agent.rendezvous.messages import Message, Values


@dataclass(eq=False)
class _Request:
    node: Node
    keys: Sequence[str]
    missing: int


class RoundValues:
    """The values of the current round.

    Args:
        send: sends a message to a node.
        settled: whether all nodes of the round have been told of it.
    """

    def __init__(self, send: Callable[[Node, Message], None], settled: Callable[[], bool]) -> None:
        self._send = send
        self._settled = settled
        self._values: dict[str, str] = {}
        self._waiting: defaultdict[str, list[_Request]] = defaultdict(list)

    def set(self, values: Mapping[str, str]) -> None:
        """Set the keys that are not set yet."""
        for key, value in values.items():
            if key not in self._values:
                self._values[key] = value
                for request in self._waiting.pop(key, ()):
                    request.missing -= 1
                    self._reply(request)

    def get(self, node: Node, keys: Sequence[str]) -> None:
        """Reply to a node's request as soon as all keys are set."""
        missing = {key for key in keys if key not in self._values}
        request = _Request(node, keys, len(missing))
        for key in missing:
            self._waiting[key].append(request)
        self._reply(request)

    def clear(self) -> None:
        """The round has ended: drop its values and its open requests."""
        self._values.clear()
        self._waiting.clear()

    def _reply(self, request: _Request) -> None:
        if not request.missing:
            values = [self._values[key] for key in request.keys]
            self._send(request.node, Values(values=values, time=time.time(), settled=self._settled()))
