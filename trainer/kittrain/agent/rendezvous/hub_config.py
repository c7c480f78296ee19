"""The hub process's configuration: one line of JSON on its stdin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HubConfig:
    """What the hub needs to know about the job.

    Attributes:
        listener_fd: file descriptor of a listening socket.
        parent_pid: process that the hub ends with.
        run_id: id of the run.
        secret: of the run; None if it has none.
        min_nodes: of a round.
        max_nodes: of a round.
        spares: nodes beyond those of a round.
        last_call_timeout: seconds that fewer than the expected nodes wait for more.
        keep_alive_interval: seconds between two keep-alives of an idle connection.
        keep_alive_max_attempt: how many of them may be missed.
        grace_seconds: that ranks may take to stop.
    """

    listener_fd: int
    parent_pid: int
    run_id: str
    secret: bytes | None
    min_nodes: int
    max_nodes: int
    spares: int
    last_call_timeout: float
    keep_alive_interval: int
    keep_alive_max_attempt: int
    grace_seconds: float
