"""What the nodes of a round tell each other: keys that are set once, and questions that wait for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kittrain.rendezvous.membership import Node
from kittrain.rendezvous.messages import Message, Values


@dataclass(eq=False)
class _Question:
    node: Node
    keys: Sequence[str]
    missing: int


class Board:
    """Of one round after the other.

    Args:
        tell: tells a node.
    """

    def __init__(self, tell: Callable[[Node, Message], None]) -> None:
        self._tell = tell
        self._values: dict[str, str] = {}
        self._waiting: defaultdict[str, list[_Question]] = defaultdict(list)

    def set(self, values: Mapping[str, str]) -> None:
        """A node tells the others something; what was set before stays."""
        for key, value in values.items():
            if key not in self._values:
                self._values[key] = value
                for question in self._waiting.pop(key, ()):
                    question.missing -= 1
                    self._answer(question)

    def get(self, node: Node, keys: Sequence[str]) -> None:
        """A node asks; it is answered once all keys are set."""
        missing = {key for key in keys if key not in self._values}
        question = _Question(node, keys, len(missing))
        for key in missing:
            self._waiting[key].append(question)
        self._answer(question)

    def clear(self) -> None:
        """The round is over, and takes questions with it."""
        self._values.clear()
        self._waiting.clear()

    def _answer(self, question: _Question) -> None:
        if not question.missing:
            self._tell(question.node, Values(values=[self._values[key] for key in question.keys]))
