"""Offers a node's metrics on its port, if its job asks for them."""

from __future__ import annotations

import socket
from collections.abc import Callable

from kittrain.agent.metrics import exposition, server
from kittrain.agent.metrics.node_metrics import NodeMetrics
from kittrain.job.env import NodeEnv
from kittrain.system.port import PortBusyError, listen

LOOPBACK = "127.0.0.1"


def offer(node: NodeEnv, metrics: NodeMetrics, now: Callable[[], float], log: Callable[[str], None]) -> None:
    """Listen, and answer from a thread. Without a free port there are no metrics, which is logged.

    Args:
        node: on this machine it has an address of loopback, which alone is listened on then.
        metrics: of this node.
        now: the time of its history.
        log: is told the address.
    """
    host = node.local_addr or LOOPBACK
    local = host == LOOPBACK
    wanted = node.job.metrics.port + (node.node_index if local else 0)
    try:
        listener = _listener(host, wanted)
    except OSError as error:
        log(f"warning: no metrics: {error}")
        return
    port = listener.getsockname()[1]
    if port != wanted and not local:
        log(f"warning: port {wanted} is taken on this host, so a PodMonitor does not find this node's metrics")
    log(f"metrics at http://{f'[{host}]' if ':' in host else host}:{port}/metrics")

    def text(openmetrics: bool) -> tuple[str, str]:  # noqa: FBT001  the only argument
        kind = exposition.OPENMETRICS if openmetrics else exposition.PLAIN
        return kind, exposition.write(metrics.families(now()), openmetrics=openmetrics)

    server.serve(listener, text)


def _listener(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port, timeout=0.0)
    except (PortBusyError, OverflowError):
        return listen(host, 0, timeout=0.0)
