"""How the nodes find each other: torch's dynamic rendezvous over one TCPStore that node 0's agent hosts.

The store lives as long as node 0's agent, and every node, node 0 too, joins as a client: a rendezvous can then be
begun anew without the store going away. What never lives here: starting ranks.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
    _Action,
    _RendezvousContext,
)

from trainer.env import EnvError, NodeEnv

# What an attempt ends with when the store or the other nodes went away: try again with a new connection.
LOST: Final = (RendezvousError, dist.DistError)
BIND_PATIENCE: Final = 5.0  # seconds for a port that a killed agent left busy
LEAVE_PATIENCE: Final = 5.0  # seconds to take oneself off the list; the heartbeat would do it after five, too


class PortBusyError(Exception):
    """Another process listens on the rendezvous port."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Times of the rendezvous in seconds, under torchrun's names; other keys of PET_RDZV_CONF are torchrun's alone."""

    join_timeout: int = 900  # how long a node waits for the others
    last_call_timeout: int = 3  # how long an elastic job waits for more once it has its minimum
    keep_alive_interval: int = 1
    keep_alive_max_attempt: int = 5  # a node that is silent for this many intervals is dead
    read_timeout: int = 15  # longest single operation on the store

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> Knobs:
        """Read ``PET_RDZV_CONF``.

        Raises:
            EnvError: a time is not a positive whole number of seconds.
        """
        given = {knob.name: conf[knob.name] for knob in fields(cls) if knob.name in conf}
        for name, text in given.items():
            if not text.isdecimal() or int(text) == 0:
                raise EnvError(f"PET_RDZV_CONF: {name}={text!r} is not a positive number of seconds")
        return cls(**{name: int(text) for name, text in given.items()})


def host_store(node: NodeEnv, *, patience: float = BIND_PATIENCE) -> dist.TCPStore:
    """Host the store for as long as the returned object lives.

    A job of this machine alone listens on the loopback address only: the store has no authentication.

    Raises:
        PortBusyError: the port stayed busy for ``patience`` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            listener = _listen(node.rendezvous_host, node.rendezvous_port)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if time.monotonic() > deadline:
                raise PortBusyError(f"port {node.rendezvous_port} is used by another process") from error
            time.sleep(0.2)
    address = listener.getsockname()[0]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  looked up, not bound
    return _store(host, node.rendezvous_port, listen_fd=listener.detach())


def connect(
    node: NodeEnv, knobs: Knobs, *, deadline: float, waiting: Callable[[str], None] = lambda _: None
) -> dist.TCPStore:
    """Connect to the store, which may not be up yet and whose host's name may not resolve yet.

    Args:
        node: who is asking.
        knobs: ``read_timeout`` becomes the store's.
        deadline: when to give up, in ``time.monotonic()``.
        waiting: told why it has to wait, once.

    Raises:
        RendezvousTimeoutError: the store could not be reached in time.
    """
    address = (node.rendezvous_host, node.rendezvous_port)
    told = False
    while True:
        try:
            # Torch waits for a store in C++, where no signal gets through; so look first.
            socket.create_connection(address, timeout=2).close()
            return _store(*address, timeout=knobs.read_timeout)
        except (OSError, dist.DistError) as error:
            if time.monotonic() > deadline:
                raise RendezvousTimeoutError(
                    f"node 0 cannot be reached at {address[0]}:{address[1]}: {error}"
                ) from error
            if not told:
                waiting(f"waiting for node 0 at {address[0]}:{address[1]} ({error})")
                told = True
        time.sleep(0.3)


def join(node: NodeEnv, knobs: Knobs, store: dist.TCPStore, *, local_addr: str) -> DynamicRendezvousHandler:
    """A handler for one attempt. ``local_addr`` is where the other nodes reach this one."""
    # Else the ranks would use the first round's store: a node that comes later waits for keys that nobody sets again.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    handler: DynamicRendezvousHandler = DynamicRendezvousHandler.from_backend(
        run_id=node.run_id,
        store=store,
        backend=C10dRendezvousBackend(store, node.run_id),
        min_nodes=node.min_nodes,
        max_nodes=node.max_nodes,
        local_addr=local_addr,
        timeout=RendezvousTimeout(
            join=timedelta(seconds=knobs.join_timeout), last_call=timedelta(seconds=knobs.last_call_timeout)
        ),
        keep_alive_interval=knobs.keep_alive_interval,
        keep_alive_max_attempt=knobs.keep_alive_max_attempt,
    )
    return handler


def leave(handler: DynamicRendezvousHandler) -> None:
    """Take this node off all lists at once; torch's ``shutdown()`` would close the rendezvous for all, for good."""
    handler._stop_heartbeats()  # noqa: SLF001  torch offers no public way to leave
    with suppress(*LOST):
        handler._op_executor.run(_leave, time.monotonic() + LEAVE_PATIENCE)  # noqa: SLF001  as above


def _leave(context: _RendezvousContext, deadline: float) -> _Action:
    state = context.state
    lists = (
        (state.participants, _Action.REMOVE_FROM_PARTICIPANTS),
        (state.wait_list, _Action.REMOVE_FROM_WAIT_LIST),
        (state.redundancy_list, _Action.REMOVE_FROM_REDUNDANCY_LIST),
    )
    mine = (action for members, action in lists if context.node in members)
    return next(mine, _Action.FINISH) if time.monotonic() < deadline else _Action.ERROR_TIMEOUT


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        found = []  # the pod's own name may not resolve yet; it is no loopback name then
    for family, _, _, _, (address, *_) in found:
        if ipaddress.ip_address(address).is_loopback:
            return socket.create_server((str(address), port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _store(host: str, port: int, *, timeout: float = 300, listen_fd: int | None = None) -> dist.TCPStore:
    return dist.TCPStore(
        host,
        port,
        is_master=listen_fd is not None,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listen_fd,
        use_libuv=False,  # Debian builds torch without it; one connection a node does not need it
    )
