"""Where the ranks of a group meet in each step: on one host by sockets of their own, over several by a collective.

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
from kittrain.system.meeting import Door, Meeting, MeetingError

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NETWORK: Final = Path("/proc/self/ns/net")
CPU: Final = torch.device("cpu")


class CollectiveMeeting:
    """Meetings by a collective of the group; its methods are those of ``Meeting``.

    Args:
        group: of those that meet.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._work: dist.Work | None = None

    def begin(self) -> None:
        """Come to the next meeting."""
        self._work = self._group.barrier()

    def wait(self) -> None:
        """Wait until all have come to it."""
        assert self._work
        self._work.wait()
        self._work = None

    def withdraw(self) -> None:
        """Nothing to do: the connections of the group end with its round."""

    def close(self) -> None:
        """Drop what is left of a meeting."""
        self._work = None


def meeting_of(
    group: dist.ProcessGroup, *, timeout: float, over: Callable[[], bool] = lambda: False
) -> Meeting | CollectiveMeeting:
    """Meetings of the ranks of a group, on CPUs. Collective.

    Args:
        group: of those that meet.
        timeout: of a meeting, in seconds.
        over: whether the round of these ranks is over.

    Raises:
        MeetingError: it is.
    """
    with ExitStack() as stack:
        host, door = _here(), _door(stack)
        own = [host, door.address, door.key] if door else [secrets.randbits(63), 0, 0]
        rows = exchange.all_gather(own, CPU, group=group)
        if door is None or any(one[0] != host for one in rows):
            return CollectiveMeeting(group)
        doors = [(address, key) for _, address, key in rows]
        peers = _connect(door, doors, dist.get_rank(group), over)
        if over():
            raise MeetingError("Connection closed by peer")
        if all(one[0] for one in exchange.all_gather([int(peers is not None)], CPU, group=group)):
            assert peers is not None
            return Meeting(peers, timeout=timeout)
        for one in peers or ():
            one.close()
        return CollectiveMeeting(group)


def _here() -> int:
    """Equal where processes reach each other's addresses: on one machine, in one network namespace."""
    try:
        space = os.stat(NETWORK)  # noqa: PTH116  as it is
        facts = f"{BOOT.read_text(encoding='ascii')} {space.st_dev} {space.st_ino}"
    except OSError:
        return secrets.randbits(63)
    return int.from_bytes(hashlib.sha256(facts.encode()).digest()[:7], "big")


def _door(stack: ExitStack) -> Door | None:
    try:
        return stack.enter_context(Door())
    except OSError:
        return None


def _connect(
    door: Door, doors: list[tuple[int, int]], own: int, over: Callable[[], bool]
) -> list[socket.socket] | None:
    try:
        return door.connect(doors, own, stop=over)
    except OSError:
        return None
