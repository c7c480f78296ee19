"""What the hub's process is told as it starts, as one line of JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The job, as far as the hub needs to know it.

    Attributes:
        listener: file descriptor of a listening socket.
        parent: process to end with.
        run: id of the run.
        secret: of the run; None where it has none.
        fewest: nodes of a round.
        most: nodes of a round.
        last_call: seconds that fewer nodes wait for more.
        interval: seconds between two signs of life of a connection.
        attempts: how many of them may be missing.
        grace: seconds that ranks may take to stop.
    """

    listener: int
    parent: int
    run: str
    secret: bytes | None
    fewest: int
    most: int
    last_call: float
    interval: int
    attempts: int
    grace: float
