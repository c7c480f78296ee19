"""The TCPStore of a round's ranks (torch's "agent store"), hosted by the agent of the round's first node.

Torch's store accepts any client that can reach it. A store that rank 0 hosts listens on all addresses. This one listens
on the loopback address if that is the node's address, and its port is reserved from the start.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from functools import cache
from typing import Final

import torch
import torch.distributed as dist

from kittrain.system import port

CLIENT_TIMEOUT: Final = timedelta(seconds=15)


class RankStore:
    """The store of the current round; it lives until the next round, since the ranks may use it until then."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._store: dist.TCPStore | None = None
        is_supported()  # checked now: it would delay forming a round

    def reserve(self, address: str) -> int:
        """Listen at this node's address for the next round; returns the port, which stays the same until it is used."""
        self._listener = self._listener or port.listen(address, 0)
        return int(self._listener.getsockname()[1])

    def begin(self, *, first: bool) -> None:
        """A round was formed: host its store if this is its first node."""
        self._store = None
        if not first:
            return
        assert self._listener
        listener, self._listener = self._listener, None
        if is_supported():
            self._store = host(listener, libuv=bool(_server()) and os.environ.get("USE_LIBUV", "1") == "1")
        listener.close()


def is_supported() -> bool:
    """Whether ranks can use an agent's store: torch's client for it requires libuv, which some builds lack.

    Without it rank 0 hosts the store, as torch does without an agent.
    """
    return _server() is not None


@cache
def _server() -> bool | None:
    """Whether the server uses libuv; None if ranks can use neither."""
    kinds = (True, False) if torch.__version__ >= "2.7" else (False,)  # in torch 2.6 a libuv server takes no socket
    return next((libuv for libuv in kinds if _works(libuv=libuv)), None)


def _works(*, libuv: bool) -> bool:
    listener = port.listen("127.0.0.1", 0)
    number = listener.getsockname()[1]
    try:
        server = host(listener, libuv=libuv)
        dist.TCPStore("127.0.0.1", number, is_master=False, wait_for_workers=False, timeout=CLIENT_TIMEOUT)
    except RuntimeError:  # dist.DistStoreError is one
        return False
    del server
    return True


def host(listener: socket.socket, *, libuv: bool) -> dist.TCPStore:
    """A store on a listening socket, which belongs to the store from now on."""
    address, number, *_ = listener.getsockname()
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  compared, not bound
    return dist.TCPStore(
        local, number, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=libuv
    )
