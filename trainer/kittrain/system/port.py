"""Listens on the rendezvous port of node 0, and connects to it with backoff."""

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

BIND_TIMEOUT: Final = 5.0  # seconds; a killed agent may have left the port busy
MIN_BACKOFF: Final = 0.05  # seconds between two attempts
MAX_BACKOFF: Final = 1.0  # seconds between two attempts of a small job
ATTEMPTS_PER_SECOND: Final = 1000  # of all nodes together; each attempt is a DNS lookup
RANDOM: Final = random.SystemRandom()  # scripts seed the default generator, and forks share it
BACKLOG: Final = 4096  # pending connections; Linux caps it at net.core.somaxconn
CONNECT_TIMEOUT: Final = 2.0  # seconds per attempt: a deleted pod does not answer at all


class PortBusyError(Exception):
    """Another process listens on the rendezvous port."""


def listen(host: str, port: int, *, timeout: float = BIND_TIMEOUT) -> socket.socket:
    """Listen on all addresses; on loopback only if ``host`` is loopback: torch's store has no authentication.

    Raises:
        PortBusyError: the port stayed busy for ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return _listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if time.monotonic() > deadline:
                raise PortBusyError(f"port {port} is used by another process") from error
            time.sleep(MIN_BACKOFF)


def connect(
    host: str, port: int, *, deadline: float, nodes: int = 1, waiting: Callable[[str], None] = lambda _: None
) -> socket.socket:
    """Connect to node 0, retrying while it is not up or its name does not resolve.

    Args:
        host: node 0's name or address.
        port: node 0's port.
        deadline: when to give up, in ``time.monotonic()``.
        nodes: how many nodes may be connecting at the same time.
        waiting: called with the reason before each further attempt.

    Raises:
        TimeoutError: the deadline passed.
    """
    began = time.monotonic()
    while True:
        try:
            return socket.create_connection((host, port), timeout=CONNECT_TIMEOUT)
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"node 0 cannot be reached at {host}:{port}: {error}") from error
            waiting(f"waiting for node 0 at {host}:{port} ({error})")
        sleep_backoff(began, nodes=nodes)


def sleep_backoff(began: float, *, nodes: int) -> None:
    """Sleep until the next attempt, with jitter; ``began`` is the first attempt, in ``time.monotonic()``."""
    time.sleep(backoff(time.monotonic() - began, nodes=nodes) * RANDOM.uniform(0.75, 1.25))


def backoff(waited: float, *, nodes: int) -> float:
    """Seconds until the next attempt: a twentieth of the time waited, and enough to spare the cluster's DNS."""
    return max(min(max(MIN_BACKOFF, waited / 20), MAX_BACKOFF), nodes / ATTEMPTS_PER_SECOND)


def raise_fd_limit() -> None:
    """Raise the soft limit of file descriptors to the hard one: each node needs one, and 1024 is a common default."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # macOS reports infinity and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        found = []  # the pod's own name may not resolve yet; then it is not loopback
    for family, _, _, _, (address, *_) in found:
        if ipaddress.ip_address(address).is_loopback:
            return socket.create_server((str(address), port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)
