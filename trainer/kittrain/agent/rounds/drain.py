"""Handles SIGTERM and SIGINT to the agent as a request to drain the node; others request it, too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALLED: Final = "received a stop signal"


class DrainRequested(BaseException):  # not an error: `except Exception` must not swallow it
    """Raised in waits that can be aborted. While ranks run, the request is only recorded."""


class Drain:
    """Whether, when and why a drain was requested. Later requests change nothing.

    Attributes:
        requested_at: by ``time.monotonic()``; None: it was not.
        reason: of the request, and what was lost by it where that is known.
    """

    def __init__(self) -> None:
        self.requested_at: float | None = None
        self.reason = SIGNALLED
        self._interruptible = False

    @property
    def requested(self) -> bool:
        """Whether a drain was requested."""
        return self.requested_at is not None

    def age(self) -> float:
        """Seconds since it was requested; 0 if it was not."""
        return 0.0 if self.requested_at is None else time.monotonic() - self.requested_at

    def install(self) -> None:
        """Install the handlers. Torch replaces them whenever it starts ranks, so this is called again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def request(self, reason: str) -> None:
        """Request it from any thread."""
        if not self.requested:
            self.reason = reason
            os.kill(os.getpid(), signal.SIGTERM)  # so that the main thread's waits are aborted, too

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A wait that a drain request aborts.

        Raises:
            DrainRequested: a drain was requested before, or is requested within the context.
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
            self._interruptible = False  # only once: the clean-up must not be interrupted
            raise DrainRequested
