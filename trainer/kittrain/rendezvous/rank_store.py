"""The TCPStore of a round's ranks (torch's "agent store"), hosted by the agent of the round's first node.

Torch's store accepts any client that can reach it. A store that rank 0 hosts listens on all addresses. This one listens
on the loopback address if that is the node's address, and its port is reserved from the start.
"""

from __future__ import annotations

import os
import socket
from functools import cache

import torch.distributed as dist

from kittrain.system import port


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
        self._store = host(listener, libuv=os.environ.get("USE_LIBUV", "1") == "1") if is_supported() else None
        listener.close()


@cache
def is_supported() -> bool:
    """Whether ranks can use an agent's store: torch's client for it requires libuv, which some builds lack.

    Without it rank 0 hosts the store, as torch does without an agent.
    """
    try:
        host(port.listen("127.0.0.1", 0), libuv=True)
    except RuntimeError:  # dist.DistStoreError is one
        return False
    return True


def host(listener: socket.socket, *, libuv: bool) -> dist.TCPStore:
    """A store on a listening socket, which belongs to the store from now on."""
    address, number, *_ = listener.getsockname()
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  compared, not bound
    return dist.TCPStore(
        local, number, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=libuv
    )
