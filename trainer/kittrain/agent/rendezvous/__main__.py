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
from kittrain.agent.rendezvous.hub_config import HubConfig, hub_of
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
    hub = hub_of(config, partial(log, config.node))
    asyncio.run(hub.serve(socket.socket(fileno=config.listener_fd)))


if __name__ == "__main__":
    main()
