"""The sockets of this process, and how to end their connections from another thread: whoever waits there gets an error.

For libraries that open sockets in C++, and cannot be told to close them. Standard library only.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

DESCRIPTORS: Final = Path("/dev/fd")
NETWORK: Final = frozenset({socket.AF_INET, socket.AF_INET6})


def open_sockets() -> frozenset[int]:
    """The inode of each socket: unlike its descriptor, no other one has it later."""
    return frozenset(_by_inode())


def shut_down(inodes: Collection[int]) -> None:
    """Make these sockets read the end of their connections, if they are of a network.

    One that listens stays as it is, as gloo would end its process. Nor is it kept from writing: a failed write that
    gloo is in the middle of wakes nobody up.
    """
    for inode, descriptor in _by_inode().items():
        if inode in inodes:
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
                if one.family in NETWORK and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    one.shutdown(socket.SHUT_RD)


def _by_inode() -> dict[int, int]:
    found = {}
    for name in os.listdir(DESCRIPTORS):  # noqa: PTH208  numbers
        with suppress(OSError):  # that of the folder
            facts = os.fstat(int(name))
            if stat.S_ISSOCK(facts.st_mode):
                found[facts.st_ino] = int(name)
    return found
