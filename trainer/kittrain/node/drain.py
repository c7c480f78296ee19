"""The request to drain: what SIGTERM (or SIGINT) to an agent means, wherever the agent is at that moment."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class DrainRequested(BaseException):  # a request, no error: nobody's `except Exception` may eat it
    """Raised out of a wait that has nothing to finish; while ranks run the request is only noted."""


class Drain:
    """Whether this node was told to leave, and when. Later signals change nothing."""

    def __init__(self) -> None:
        self.requested_at: float | None = None  # time.monotonic()
        self._interruptible = False

    @property
    def requested(self) -> bool:
        """Whether the node was told to leave."""
        return self.requested_at is not None

    def install(self) -> None:
        """Take over SIGTERM and SIGINT. Torch takes them back whenever it starts ranks, so this is called again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A stretch of waiting that a request ends at once.

        Raises:
            DrainRequested: the request came before, or comes within.
        """
        self._interruptible = True
        try:
            if self.requested:
                raise DrainRequested
            yield
        finally:
            self._interruptible = False

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.requested_at is None:
            self.requested_at = time.monotonic()
        if self._interruptible:
            self._interruptible = False  # once: the way out must not be interrupted again
            raise DrainRequested
