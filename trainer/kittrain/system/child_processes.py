"""This process's name and its children, orphans that it adopted included. Linux only. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

PR_SET_NAME: Final = 15  # linux/prctl.h
LOOK_SECONDS: Final = 10.0  # between two looks for orphans that have ended
RANK: Final = "kit-rank-"  # before a rank's number, in its name
SUPERVISOR: Final = "kit-supervisor"  # name of a pod supervisor, whose command line is that of its agent


def own_name() -> str:
    """The name that ``ps`` and /proc show."""
    return Path("/proc/self/comm").read_text().rstrip("\n")


def set_own_name(name: str) -> None:
    """Set that name, of at most 15 bytes."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def show_as(name: str) -> None:
    """Set it where the system has it, for people: its command line stays, by which scripts are found."""
    if sys.platform == "linux":
        set_own_name(name)


def children() -> list[int]:
    """The process ids of this process's children, ended ones that were not waited for included."""
    return list(_states())


def _states() -> dict[int, str]:
    """The state of each child, as proc(5) has it: Z has ended and was not waited for."""
    mine, found = os.getpid(), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == mine:
                found[int(path.parent.name)] = state
    return found


def ranks_left() -> list[int]:
    """The ranks of which this process has adopted a fork that runs on: it bears the name of its rank."""
    found: set[int] = set()
    for pid, state in _states().items():
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
            if state != "Z" and name.startswith(RANK):
                found.add(int(name.removeprefix(RANK)))
    return sorted(found)


class OrphanReaper:
    """Reaps adopted orphans that have ended, now and then: a job may leave thousands, and process ids are limited.

    Nobody waits for those; whoever started a child of this process waits for it sooner than ``LOOK_SECONDS``.
    """

    def __init__(self) -> None:
        self._ended: set[int] = set()  # at the last look
        self._next = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        """To be called often; mostly does nothing."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + LOOK_SECONDS
        ended = {pid for pid, state in _states().items() if state == "Z"}
        for pid in ended & self._ended:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._ended = ended - self._ended


def kill_children(*, but: int = 0) -> None:
    """Kill and reap all children except one; each that ends may leave orphans, which become children, too."""
    while pids := [pid for pid in children() if pid != but]:
        for pid in pids:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
