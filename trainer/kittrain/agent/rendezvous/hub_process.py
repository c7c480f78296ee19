"""Starts the hub as a child process of node 0's agent, for as long as the agent lives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kitjob import typed
from kittrain.agent.rendezvous.hub_config import HubConfig, config_of
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import NodeEnv
from kittrain.system import port


@contextmanager
def hub_process(
    node: NodeEnv, settings: RendezvousSettings, *, secret: bytes | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the hub and yield its process. Its socket listens by then; it accepts connections a moment later.

    It is a process because importing torch would block a thread for seconds, and all other nodes wait for the hub.

    Raises:
        PortBusyError: another process uses the port.
    """
    with port.listen(node.run.rendezvous_host, node.run.rendezvous_port) as listener:
        config = config_of(node, settings, secret=secret, listener_fd=listener.fileno(), parent_pid=os.getpid())
        hub = subprocess.Popen(
            [sys.executable, "-P", "-m", "kittrain.agent.rendezvous"],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
        )
    try:
        _send_config(hub, config)
        yield hub
    finally:
        hub.kill()
        hub.wait()


def _send_config(hub: subprocess.Popen[bytes], config: HubConfig) -> None:
    assert hub.stdin
    with suppress(BrokenPipeError), hub.stdin as stdin:  # if it has already exited, the supervisor notices by poll()
        stdin.write(typed.dump(config) + b"\n")
