"""This process's name and its children, orphans that it adopted included. Linux only. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

PR_SET_NAME: Final = 15  # linux/prctl.h
SUPERVISOR: Final = "kit-supervisor"  # name of a pod supervisor, whose command line is that of its agent


def own_name() -> str:
    """The name that ``ps`` and /proc show."""
    return Path("/proc/self/comm").read_text().rstrip("\n")


def set_own_name(name: str) -> None:
    """Set that name, of at most 15 bytes."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def children() -> list[int]:
    """The process ids of this process's children, ended ones that were not waited for included."""
    mine, found = os.getpid(), []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == mine:  # proc(5): state, then the parent
                found.append(int(path.parent.name))
    return found


def kill_children(*, but: int = 0) -> None:
    """Kill and reap all children except one; each that ends may leave orphans, which become children, too."""
    while pids := [pid for pid in children() if pid != but]:
        for pid in pids:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
