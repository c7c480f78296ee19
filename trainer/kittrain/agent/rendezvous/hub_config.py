"""The hub process's configuration: one line of JSON on its stdin."""

from __future__ import annotations

from dataclasses import dataclass

from kittrain.agent.rendezvous.settings import RendezvousSettings


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
        settings: timeouts.
        grace_seconds: that ranks may take to stop.
    """

    listener_fd: int
    parent_pid: int
    run_id: str
    secret: bytes | None
    min_nodes: int
    max_nodes: int
    spares: int
    settings: RendezvousSettings
    grace_seconds: float
