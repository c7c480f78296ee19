"""What is kept for each of some objects, for as long as they live.

A ``WeakKeyDictionary`` asks a key for its hash and compares it, and classes of a script's own may refuse a hash, as a
data class does, or call two objects equal. Here an object is known by its identity.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class ByIdentity(Generic[Value]):
    """A dictionary with weak keys that are told apart by identity; ``TypeError`` for what has no weak references."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, owner: object) -> bool:
        return id(owner) in self._held

    def __iter__(self) -> Iterator[Any]:
        """The objects that live."""
        return iter([owner for reference, _ in list(self._held.values()) if (owner := reference()) is not None])

    def __setitem__(self, owner: object, value: Value) -> None:
        number, held = id(owner), self._held

        def forget(_: object) -> None:
            held.pop(number, None)

        held[number] = weakref.ref(owner, forget), value

    def get(self, owner: object, default: Value | None = None) -> Value | None:
        """The value of an object, or ``default``."""
        found = self._held.get(id(owner))
        return found[1] if found else default

    def setdefault(self, owner: object, value: Value) -> Value:
        """The value of an object, which gets ``value`` if it has none."""
        if owner not in self:
            self[owner] = value
        return self._held[id(owner)][1]

    def pop(self, owner: object) -> Value | None:
        """Forget an object; returns its value, or None."""
        found = self._held.pop(id(owner), None)
        return found[1] if found else None

    def clear(self) -> None:
        """Forget all of them."""
        self._held.clear()
