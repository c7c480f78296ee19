"""Forwards a port of this machine to a pod: a web socket for each connection, until it is interrupted."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable

from kitctl.base.errors import ConflictError, KitError
from kitctl.state.running_job import RankPlace
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.api_errors import one_line
from kitctl.targets.cluster.connection.resources import Object

REFUSED = r"(?i)connection refused"  # a kubelet says it of each address, after the names of its containers


def serve(
    api: Api, pod: Object, user: str, place: RankPlace, ports: tuple[int, int], announce: Callable[[str], object]
) -> None:
    """Accept connections on the loopback interface only, and forward each.

    Raises:
        ConflictError: the port is taken.
    """
    local, remote = ports
    where = pod["metadata"]

    def forward(connection: socket.socket) -> None:
        try:
            api.forward(where["namespace"], where["name"], remote, connection)
        except KitError as error:
            refused = re.search(REFUSED, error.message)
            announce(f"connection ended: {'nothing listens there' if refused else one_line(error.message)}")

    try:
        listening = socket.create_server(("127.0.0.1", local))
    except OSError as error:
        what = f"port {local} of this machine cannot be used: {error.strerror}"
        raise ConflictError(what, fix=f"choose another one, or 0 for any: 0:{remote}") from error
    with listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        announce(f"rank {place.rank}: pod {where['name']}, port {remote}, is {address}, by {user}; Ctrl-C ends it")
        while True:
            threading.Thread(target=forward, args=(listening.accept()[0],), daemon=True).start()
