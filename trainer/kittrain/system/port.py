"""The rendezvous port on node 0: listening there, for many, and reaching it from wherever a node is."""

from __future__ import annotations

import errno
import ipaddress
import random
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

BIND_PATIENCE: Final = 5.0  # seconds for a port that a killed agent left busy
LOOK_AGAIN: Final = 0.05  # seconds between two attempts at least
PATIENT: Final = 1.0  # seconds between two attempts to connect at most, of few nodes
LOOKS: Final = 1000  # attempts in a second, of all nodes of a job; each looks up a name
CHANCE: Final = random.SystemRandom()  # not the generator that a script may have seeded, or shares with its parent
BACKLOG: Final = 4096  # connections that may arrive at once; Linux takes net.core.somaxconn if that is less
CONNECT_TIMEOUT: Final = 2.0  # seconds for one attempt: packets to a pod that is gone are not answered at all


class PortBusyError(Exception):
    """Another process listens on the rendezvous port."""


def listen(host: str, port: int, *, patience: float = BIND_PATIENCE) -> socket.socket:
    """Listen on this machine, on the loopback address only if that is the host's: torch's store has no authentication.

    Raises:
        PortBusyError: the port stayed busy for ``patience`` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return _listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if time.monotonic() > deadline:
                raise PortBusyError(f"port {port} is used by another process") from error
            time.sleep(LOOK_AGAIN)


def reach(
    host: str, port: int, *, deadline: float, nodes: int = 1, waiting: Callable[[str], None] = lambda _: None
) -> socket.socket:
    """Connect to node 0, which may not be up yet and whose name may not resolve yet.

    Args:
        host: node 0's name or address.
        port: there.
        deadline: when to give up, in ``time.monotonic()``.
        nodes: that may all be at it.
        waiting: told why it has to wait, before each further attempt.

    Raises:
        TimeoutError: it could not be reached in time.
    """
    began = time.monotonic()
    while True:
        try:
            return socket.create_connection((host, port), timeout=CONNECT_TIMEOUT)
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"node 0 cannot be reached at {host}:{port}: {error}") from error
            waiting(f"waiting for node 0 at {host}:{port} ({error})")
        rest(began, nodes=nodes)


def rest(began: float, *, nodes: int) -> None:
    """Sleep until the next look of one that has waited since ``began``, in ``time.monotonic()``."""
    time.sleep(pause(time.monotonic() - began, nodes=nodes) * CHANCE.uniform(0.75, 1.25))


def pause(waited: float, *, nodes: int) -> float:
    """Seconds until the next look: a twentieth of the time waited, and long enough for a cluster's DNS."""
    return max(min(max(LOOK_AGAIN, waited / 20), PATIENT), nodes / LOOKS)


def allow_connections() -> None:
    """Allow as many file descriptors as the system does: each node has one, and many systems begin with 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # macOS calls it infinite and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        found = []  # the pod's own name may not resolve yet; it is no loopback name then
    for family, _, _, _, (address, *_) in found:
        if ipaddress.ip_address(address).is_loopback:
            return socket.create_server((str(address), port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)
