"""The port at which processes of one session meet on this machine, in place of one that a script has fixed.

Two jobs on one machine may run the same script, with the same port in it. Their processes must not meet each other. A
port is claimed before it is listened at, so that of two jobs that start at the same time only one takes it.
Standard library only; on other systems than Linux a port is never seen as another's.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
LISTENING: Final = "0A"  # the state in /proc/net/tcp
CLAIM: Final = "kit-port-"

_claims: list[socket.socket] = []


class Port(NamedTuple):
    """A port, and whether this call has chosen it."""

    number: int
    new: bool


def local_port(port: int, file: Path) -> Port:
    """The port itself, or another one if a process of another session listens there.

    Args:
        port: that the script has fixed.
        file: in which the first caller writes its choice, for the others of this session.

    Raises:
        OSError: the file cannot be written.
    """
    with file.open("a+") as chosen:
        fcntl.flock(chosen, fcntl.LOCK_EX)
        chosen.seek(0)
        if text := chosen.read():
            return Port(int(text), new=False)
        number = port if not taken_by_others(port) and _claim(port) else _free_port()
        chosen.write(str(number))
        return Port(number, new=True)


def taken_by_others(port: int) -> bool:
    """Whether processes of other sessions only listen at a port."""
    sockets = set(_listening(port))
    return bool(sockets) and not any(sockets & set(_sockets(process)) for process in _session())


def _claim(port: int) -> bool:
    """Claim a port among the processes that use this function, for as long as this one lives. Leaves no file."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0{CLAIM}{port}")  # a name of the network's, as the port is
    except OSError:
        claim.close()
        return sys.platform != "linux"
    _claims.append(claim)
    return True


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen at a port, by inode."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # not this system, or no IPv6
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()  # proc(5): number, local address, remote address, state, ..., inode
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"


def _session() -> Iterator[Path]:
    """The processes of this session."""
    own = str(os.getsid(0))
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended
            if (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[3] == own:
                yield path


def _sockets(process: Path) -> Iterator[str]:
    with suppress(OSError):  # it has ended, or is another user's
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        number: int = probe.getsockname()[1]
        return number
