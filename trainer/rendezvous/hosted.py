"""The hub as node 0's agent sees it: a process that lives as long as the agent does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.env import NodeEnv
from trainer.rendezvous.knobs import Knobs
from trainer.system import port


@contextmanager
def hosted(node: NodeEnv, knobs: Knobs) -> Iterator[subprocess.Popen[bytes]]:
    """Host the hub, and give its process; it listens by then, and serves some moments later.

    A process of its own: importing torch would stop a thread for seconds, and the other nodes wait for nothing else.

    Raises:
        PortBusyError: another process has the port.
    """
    with port.listen(node.rendezvous_host, node.rendezvous_port) as listener:
        shape = (node.min_nodes, node.max_nodes, knobs.last_call_timeout)
        silence = (knobs.keep_alive_interval, knobs.keep_alive_max_attempt)
        arguments = (listener.fileno(), os.getpid(), node.run_id, *shape, *silence, node.grace_seconds)
        hub = subprocess.Popen(
            [sys.executable, "-P", "-m", "trainer.rendezvous", *map(str, arguments)], pass_fds=[listener.fileno()]
        )
    try:
        yield hub
    finally:
        hub.kill()
        hub.wait()
