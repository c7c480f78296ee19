"""What one thread hands to another, which takes all that there is at once."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Backlog(Generic[T]):
    """In order; for any threads.

    Args:
        most: that it holds; the oldest are dropped.
    """

    def __init__(self, most: int) -> None:
        self._change = threading.Condition()
        self._kept: deque[T] = deque(maxlen=most)
        self._closed = False

    def put(self, one: T) -> None:
        """Add one."""
        with self._change:
            self._kept.append(one)
            self._change.notify()

    def take(self) -> list[T]:
        """All that there is, which may be nothing."""
        with self._change:
            found = list(self._kept)
            self._kept.clear()
            return found

    def wait(self) -> list[T]:
        """Wait for some, and take all; nothing after ``close`` once all are taken."""
        with self._change:
            self._change.wait_for(lambda: self._kept or self._closed)
            return self.take()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._change:
            self._closed = True
            self._change.notify()
