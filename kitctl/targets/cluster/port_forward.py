"""Forwards a port of this machine to a pod: a web socket for each connection, until it is interrupted."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kitctl.base.errors import ConflictError, Forbidden, KitError, UnsupportedError
from kitctl.state.running_job import RankPlace
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.api_errors import one_line
from kitctl.targets.cluster.connection.resources import Object

VERBS: Final = ("create", "get")  # which of both depends on the server's version
REFUSED = r"(?i)connection refused"  # a kubelet says it of each address, after the names of its containers


def serve(
    api: Api, pod: Object, user: str, place: RankPlace, ports: tuple[int, int], announce: Callable[[str], object]
) -> None:
    """Accept connections on the loopback interface only, and forward each.

    Raises:
        ConflictError: the port is taken.
        Forbidden: this user may not do that; asked first, as no connection is made before there is one to forward.
    """
    local, remote = ports
    where = pod["metadata"]
    _check_right(api, where["namespace"], where["name"])

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


def _check_right(api: Api, namespace: str, pod: str) -> None:
    if not any(_may(api, verb, namespace, pod) for verb in VERBS):
        what = f"you may not forward ports to pods in namespace {namespace!r} (pods/portforward)"
        raise Forbidden(what, fix="ask for this right: kubectl auth can-i create pods/portforward")


def _may(api: Api, verb: str, namespace: str, pod: str) -> bool:
    asked = {"verb": verb, "namespace": namespace, "name": pod, "resource": "pods", "subresource": "portforward"}
    with suppress(Forbidden, UnsupportedError):  # it is not known, then
        return bool(api.review("SelfSubjectAccessReview", spec={"resourceAttributes": asked}).get("allowed", True))
    return True
