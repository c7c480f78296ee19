"""What processes use, as Linux counts it: processor time, and bytes read and written. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")  # of processor time in a second
PROC: Final = Path("/proc")
MOVED: Final = frozenset({"rchar", "wchar", "read_bytes", "write_bytes"})


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Of a process and all that it has started.

    Attributes:
        seconds: of processor time so far, that of ended children included.
        moved: bytes read and written so far, through system calls and from or to disks.
        wanting: whether one of the processes wants a processor now, or waits for a disk (states R and D).
    """

    seconds: float = 0.0
    moved: int = 0
    wanting: bool = False


@dataclass(frozen=True, kw_only=True)
class _Process:
    parent: int
    session: int
    state: str
    seconds: float


def usage(leaders: Iterable[int]) -> dict[int, Usage]:
    """What each of these leaders of a session uses, with its offspring and with its session, whoever is left of it.

    A leader is left out where that cannot be seen: it has ended, or this is not Linux.
    """
    processes = dict(_processes())
    return {
        leader: _sum(
            {pid: one for pid, one in processes.items() if one.session == leader or _is_below(leader, pid, processes)}
        )
        for leader in leaders
        if leader in processes
    }


def _sum(group: Mapping[int, _Process]) -> Usage:
    return Usage(
        seconds=sum(one.seconds for one in group.values()),
        moved=sum(map(_moved, group)),
        wanting=any(one.state in {"R", "D"} for one in group.values()),
    )


def _processes() -> Iterable[tuple[int, _Process]]:
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            # proc(5): state, ppid, pgrp, session, ..., utime, stime, cutime, cstime
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            seconds = sum(map(int, fields[11:15])) / TICKS
            found = _Process(parent=int(fields[1]), session=int(fields[3]), state=fields[0], seconds=seconds)
            yield int(path.parent.name), found


def _is_below(leader: int, pid: int, processes: Mapping[int, _Process]) -> bool:
    """Whether a process is the leader, or was started by it or by one that is below it."""
    while pid in processes and pid != leader:
        pid = processes[pid].parent
    return pid == leader


def _moved(pid: int) -> int:
    with suppress(OSError, ValueError):  # it ended meanwhile, or belongs to another user
        lines = (PROC / str(pid) / "io").read_text().splitlines()
        return sum(int(value) for name, _, value in (line.partition(": ") for line in lines) if name in MOVED)
    return 0
