"""The key-value store of a round, with the methods that torch's elastic agent and the report use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kittrain.agent.rendezvous.messages import Get, Message, Set, Values


class RoundStore:
    """Values that the nodes of a round share. The hub holds them until the round ends; a key is set only once.

    Args:
        send: sends a message to the hub.
        request: sends a request to the hub, and returns its reply.
    """

    def __init__(self, send: Callable[[Message], None], request: Callable[[Get], Values]) -> None:
        self._send = send
        self._request = request

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set keys."""
        texts = (value if isinstance(value, str) else value.decode() for value in values)
        self._send(Set(values=dict(zip(keys, texts, strict=True))))

    def get(self, key: str) -> bytes:
        """A key's value; blocks until it is set."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of these keys; blocks until all of them are set."""
        return [value.encode() for value in self._request(Get(keys=keys)).values]
