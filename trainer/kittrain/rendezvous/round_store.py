"""The store of a round, as far as torch's elastic agent and the report need one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kittrain.rendezvous.messages import Get, Message, Set, Values


class RoundStore:
    """What the nodes of a round tell each other, kept by the hub until the round is over; keys are set once.

    Args:
        say: tells the hub.
        ask: asks the hub, and gives its answer.
    """

    def __init__(self, say: Callable[[Message], None], ask: Callable[[Get], Values]) -> None:
        self._say = say
        self._ask = ask

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set keys."""
        texts = (value if isinstance(value, str) else value.decode() for value in values)
        self._say(Set(values=dict(zip(keys, texts, strict=True))))

    def get(self, key: str) -> bytes:
        """A key's value, as soon as it is set."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of all these keys, as soon as they are set."""
        return [value.encode() for value in self._ask(Get(keys=keys)).values]
