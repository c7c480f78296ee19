"""Runs node 0's hub as a process next to its agent: ``python -m kittrain.agent.rendezvous``, configured by stdin.

It imports no torch, so it is up as soon as node 0 is. The configuration holds the run's secret, so it is not passed as
arguments, which any user of the machine can read.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from functools import partial

from kitjob import typed
from kittrain.agent.rendezvous.handshake import Key
from kittrain.agent.rendezvous.hang_detector import HangDetector
from kittrain.agent.rendezvous.hub import MAX_MISSED_HEARTBEATS, Hub
from kittrain.agent.rendezvous.hub_config import HubConfig
from kittrain.agent.rendezvous.membership import Membership
from kittrain.system.console import log
from kittrain.system.parent_death import die_with_parent
from kittrain.system.port import raise_fd_limit


def main() -> None:
    """Serve on the socket that the agent already listens on."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the agent handles them; the other nodes still need this process
        signal.signal(number, signal.SIG_IGN)
    config: HubConfig = typed.load(HubConfig, sys.stdin.buffer.readline())
    die_with_parent(config.parent_pid)
    raise_fd_limit()
    membership = Membership(
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        spares=config.spares,
        last_call_timeout=config.settings.last_call_timeout,
    )
    hang_detector = HangDetector(
        heartbeat_timeout=MAX_MISSED_HEARTBEATS * config.settings.keep_alive_timeout, stop_timeout=config.grace_seconds
    )
    hub = Hub(
        Key(config.secret, config.run_id),
        membership,
        hang_detector,
        settings=config.settings,
        warn=partial(log, 0),
    )
    asyncio.run(hub.serve(socket.socket(fileno=config.listener_fd)))


if __name__ == "__main__":
    main()
