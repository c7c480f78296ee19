"""The barrier of a group's ranks in each step: on one host by sockets of their own, over several by a collective.

A collective of gloo takes two more threads on each rank, which have to be given a core before the main thread goes on.

Why: decision 60.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from kittrain.rank.world import exchange
from kittrain.system.host_barrier import BarrierError, HostBarrier, Listener

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NETWORK: Final = Path("/proc/self/ns/net")
CPU: Final = torch.device("cpu")


class CollectiveBarrier:
    """A barrier by a collective of the group, with the methods of ``HostBarrier``.

    Args:
        group: of the ranks that use it.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._work: dist.Work | None = None

    def arrive(self) -> None:
        """Arrive."""
        self._work = self._group.barrier()

    def wait(self) -> None:
        """Wait until all have arrived."""
        assert self._work
        self._work.wait()
        self._work = None

    def leave(self) -> None:
        """Nothing to do: the connections of the group end with its round."""

    def close(self) -> None:
        """Drop an arrival that was not waited for."""
        self._work = None


def barrier_of(
    group: dist.ProcessGroup, *, timeout: float, over: Callable[[], bool] = lambda: False
) -> HostBarrier | CollectiveBarrier:
    """The barrier of the ranks of a group, on CPUs. Collective.

    Args:
        group: of the ranks that use it.
        timeout: for the others, in seconds.
        over: whether the round of these ranks is over.

    Raises:
        BarrierError: it is.
    """
    with ExitStack() as stack:
        host, listener = _here(), _listener(stack)
        own = [host, listener.address, listener.key] if listener else [secrets.randbits(63), 0, 0]
        rows = exchange.all_gather(own, CPU, group=group)
        if listener is None or any(one[0] != host for one in rows):
            return CollectiveBarrier(group)
        listeners = [(address, key) for _, address, key in rows]
        peers = _connect(listener, listeners, dist.get_rank(group), over)
        if over():
            raise BarrierError("Connection closed by peer")
        if all(one[0] for one in exchange.all_gather([int(peers is not None)], CPU, group=group)):
            assert peers is not None
            return HostBarrier(peers, timeout=timeout)
        for one in peers or ():
            one.close()
        return CollectiveBarrier(group)


def _here() -> int:
    """Equal where processes reach each other's addresses: on one machine, in one network namespace."""
    try:
        space = os.stat(NETWORK)  # noqa: PTH116  as it is
        facts = f"{BOOT.read_text(encoding='ascii')} {space.st_dev} {space.st_ino}"
    except OSError:
        return secrets.randbits(63)
    return int.from_bytes(hashlib.sha256(facts.encode()).digest()[:7], "big")


def _listener(stack: ExitStack) -> Listener | None:
    try:
        return stack.enter_context(Listener())
    except OSError:
        return None


def _connect(
    listener: Listener, listeners: list[tuple[int, int]], own: int, over: Callable[[], bool]
) -> list[socket.socket] | None:
    try:
        return listener.connect(listeners, own, stop=over)
    except OSError:
        return None
