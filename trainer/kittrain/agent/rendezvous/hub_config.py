"""A hub's configuration; of a hub process, one line of JSON on its stdin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kittrain.agent.rendezvous.claims import claim
from kittrain.agent.rendezvous.growth import Growth
from kittrain.agent.rendezvous.handshake import Key
from kittrain.agent.rendezvous.hang_detector import HangDetector
from kittrain.agent.rendezvous.hub import MAX_MISSED_HEARTBEATS, Hub
from kittrain.agent.rendezvous.membership import Membership
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import NodeEnv


@dataclass(frozen=True, kw_only=True)
class HubConfig:
    """What the hub needs to know about the job.

    Attributes:
        node: index of the node whose hub this is.
        run_id: id of the run.
        secret: of the run; None if it has none.
        min_nodes: of a round.
        max_nodes: of a round.
        spares: nodes beyond those of a round.
        grow_every: least seconds between two growths; None: never.
        settings: timeouts.
        grace_seconds: that ranks may take to stop.
        snapshots: the folder of snapshots, which nodes may share; None: there is none.
        history: the folder of the run's history.
        listener_fd: of a process: file descriptor of a listening socket.
        parent_pid: of a process: the one that it ends with.
    """

    node: int
    run_id: str
    secret: bytes | None
    min_nodes: int
    max_nodes: int
    spares: int
    grow_every: int | None
    settings: RendezvousSettings
    grace_seconds: float
    snapshots: Path | None
    history: Path | None
    listener_fd: int = -1
    parent_pid: int = 0

    @property
    def key(self) -> Key:
        """The run's key."""
        return Key(self.secret, self.run_id)

    def claim(self, number: int, nodes: frozenset[int]) -> bool:
        """Claim a round, of which half of the nodes is here; False if that cannot be."""
        if self.snapshots is None or self.history is None:
            return False
        try:
            return claim(self.snapshots, self.run_id, number, history=self.history, nodes=nodes)
        except OSError:  # without the folder no half goes on
            return False


def config_of(
    node: NodeEnv, settings: RendezvousSettings, *, secret: bytes | None, listener_fd: int = -1, parent_pid: int = 0
) -> HubConfig:
    """The configuration of a node's hub."""
    return HubConfig(
        node=node.node_index,
        run_id=node.run_id,
        secret=secret,
        min_nodes=node.job.min_nodes,
        max_nodes=node.job.max_nodes,
        spares=node.job.spares,
        grow_every=node.job.policy.grow_seconds,
        settings=settings,
        grace_seconds=node.grace_period,
        snapshots=node.shared_dir,
        history=node.history_folder,
        listener_fd=listener_fd,
        parent_pid=parent_pid,
    )


def hub_of(config: HubConfig, warn: Callable[[str], None]) -> Hub:
    """A hub; only node 0's forms the first round."""
    membership = Membership(
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        spares=config.spares,
        growth=Growth(math.inf if config.grow_every is None else config.grow_every),
        last_call_timeout=config.settings.last_call_timeout,
        first=config.node == 0,
    )
    hang_detector = HangDetector(
        heartbeat_timeout=MAX_MISSED_HEARTBEATS * config.settings.keep_alive_timeout, stop_timeout=config.grace_seconds
    )
    return Hub(
        config.key,
        membership,
        hang_detector,
        settings=config.settings,
        warn=warn,
        node=config.node,
        claim=config.claim,
    )
