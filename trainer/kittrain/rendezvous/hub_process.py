"""The hub as node 0's agent sees it: a process that lives as long as the agent does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kittrain.env import NodeEnv
from kittrain.rendezvous.hub_config import Orders
from kittrain.rendezvous.settings import Knobs
from kittrain.system import port, typed


@contextmanager
def hosted(node: NodeEnv, knobs: Knobs, *, secret: bytes | None) -> Iterator[subprocess.Popen[bytes]]:
    """Host the hub, and give its process; it listens by then, and serves some moments later.

    A process of its own: importing torch would stop a thread for seconds, and the other nodes wait for nothing else.

    Raises:
        PortBusyError: another process has the port.
    """
    with port.listen(node.rendezvous_host, node.rendezvous_port) as listener:
        orders = Orders(
            listener=listener.fileno(),
            parent=os.getpid(),
            run=node.run_id,
            secret=secret,
            fewest=node.min_nodes,
            most=node.max_nodes,
            last_call=knobs.last_call_timeout,
            interval=knobs.keep_alive_interval,
            attempts=knobs.keep_alive_max_attempt,
            grace=node.grace_seconds,
        )
        hub = subprocess.Popen(
            [sys.executable, "-P", "-m", "kittrain.rendezvous"], pass_fds=[listener.fileno()], stdin=subprocess.PIPE
        )
    try:
        _order(hub, orders)
        yield hub
    finally:
        hub.kill()
        hub.wait()


def _order(hub: subprocess.Popen[bytes], orders: Orders) -> None:
    assert hub.stdin
    with suppress(BrokenPipeError), hub.stdin as stdin:  # it may have ended, as whoever looks after it will see
        stdin.write(typed.dump(orders) + b"\n")
