"""A limit of time for a call as a whole, whatever it waits for: a socket's own limit is for each read."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call that may take so many seconds.

    Raises:
        TimeoutError: it takes longer. It continues in a thread that ends with the process; its result is dropped.
    """
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = results.get(timeout=max(seconds, 0.0))
    except queue.Empty:
        raise TimeoutError(f"no whole answer within {seconds:.0f} s") from None
    if error:
        raise error
    return value  # type: ignore[return-value] # it is T where there is no error
