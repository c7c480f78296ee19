"""The store of a round's ranks, which torch calls the agent's: hosted by the agent of the first node.

Torch's store lets anybody in who can reach it. One that rank 0 hosts listens on all addresses; this one listens on the
loopback address where that is the node's, for scripts of any kind, and its port is nobody else's from the start.
"""

from __future__ import annotations

import os
import socket
from functools import cache

import torch.distributed as dist

from kittrain.system import port


class RankStore:
    """One round's after the other: each stays until there is another one, since its ranks may use it until then."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._store: dist.TCPStore | None = None
        usable()  # found out now, not while a round is formed

    def reserve(self, address: str) -> int:
        """Listen at this node's address for a round that is to be formed; gives the port, kept until it is used."""
        self._listener = self._listener or port.listen(address, 0)
        return int(self._listener.getsockname()[1])

    def begin(self, *, first: bool) -> None:
        """The round is formed: serve if this node is its first one."""
        self._store = None
        if not first:
            return
        assert self._listener
        listener, self._listener = self._listener, None
        self._store = host(listener, libuv=os.environ.get("USE_LIBUV", "1") == "1") if usable() else None
        listener.close()


@cache
def usable() -> bool:
    """Whether ranks can use an agent's store: torch's client for it asks for libuv, which some builds lack.

    Without it rank 0 hosts the store, as torch does where there is no agent.
    """
    try:
        host(port.listen("127.0.0.1", 0), libuv=True)
    except RuntimeError:  # dist.DistStoreError is one
        return False
    return True


def host(listener: socket.socket, *, libuv: bool) -> dist.TCPStore:
    """A store on a socket that listens, which becomes the store's, for as long as the store lives."""
    address, number, *_ = listener.getsockname()
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  looked up, not bound
    return dist.TCPStore(
        own, number, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=libuv
    )
