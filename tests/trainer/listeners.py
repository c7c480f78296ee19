"""Finds the addresses on which processes listen, from /proc."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

LISTENS = "0A"  # linux/tcp_states.h


def addresses(pids: Iterable[int]) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of all TCP sockets that processes listen on."""
    held = {inode for pid in pids for inode in _sockets(pid)}
    return {address for inode, address in _listening() if inode in held}


def descendants(pid: int) -> list[int]:
    """A process and its descendants."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [pid, *(one for child in text.split() for one in descendants(int(child)))]
    return []


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def _listening() -> Iterator[tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            local, state = fields[1], fields[3]
            if state == LISTENS:
                digits = local.partition(":")[0]
                words = [bytes.fromhex(digits[start : start + 8])[::-1] for start in range(0, len(digits), 8)]
                yield fields[9], ipaddress.ip_address(b"".join(words))
