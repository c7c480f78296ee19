"""CPU time and I/O of processes, from Linux's /proc. Standard library only."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

TICKS: Final = os.sysconf("SC_CLK_TCK")  # clock ticks per second
PROC: Final = Path("/proc")
PF_EXITING: Final = 4  # of the kernel's flags of a task
IO_COUNTERS: Final = frozenset({"rchar", "wchar", "read_bytes", "write_bytes"})
# In the names of the kernel's functions that do.
_WRITES_TO_PIPE: Final = "pipe_write"
_WAITS_FOR_THREAD: Final = "futex"  # locks, and the pools of threads of OpenMP
_FLAGS: Final = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)
_IGNORED: Final = re.compile(r"^SigIgn:\s*([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage of a process and its descendants.

    Attributes:
        seconds: CPU time so far, including that of reaped children.
        io_bytes: bytes read and written so far, by system calls and by disks.
        runnable: whether one of the processes is running or waits for a CPU or a disk (states R and D).
        killed: the signal that has ended one of them for which its parent has not waited; 0: none.
    """

    seconds: float = 0.0
    io_bytes: int = 0
    runnable: bool = False
    killed: int = 0


@dataclass(frozen=True, kw_only=True)
class _Process:
    parent: int
    session: int
    state: str
    seconds: float
    killed: int


def is_exiting(pid: int) -> bool:
    """Whether a process exits, or has: its connections may be closed before its parent can wait for it."""
    try:
        flags = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[6]  # proc(5)
    except (OSError, IndexError):
        return False
    return bool(int(flags) & PF_EXITING)


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal; False if it has ended, and on other systems than Linux."""
    try:
        ignored = _IGNORED.search((PROC / str(pid) / "status").read_text(errors="replace"))
    except OSError:
        return False
    return bool(ignored and int(ignored[1], 16) >> (number - 1) & 1)


def usage(leaders: Iterable[int]) -> dict[int, Usage]:
    """The usage of each session leader, with its descendants and the other processes of its session.

    A leader that has ended is left out; on other systems than Linux all are.
    """
    processes = dict(_processes())
    return {leader: _sum(leader, processes) for leader in leaders if leader in processes}


def children_of(parent: int) -> list[int]:
    """A process's children that have not ended, the oldest first; on other systems than Linux none."""
    return sorted(pid for pid, one in _processes() if one.parent == parent and one.state != "Z")


def unread(parent: int) -> Literal["", "output", "queue"]:
    """Whether a child waits for room in a pipe that its parent could read: what it prints, or has put into a queue."""
    for pid in children_of(parent):
        if any(_WRITES_TO_PIPE in _wait_channel(task) for task in _tasks(pid)):
            shared = set(_pipes(parent, os.O_RDONLY)) & set(_pipes(pid, os.O_WRONLY))
            if shared:
                return "output" if shared & set(_pipes(pid, os.O_WRONLY, "1", "2")) else "queue"
    return ""


def has_lost_threads(pid: int) -> bool:
    """Whether a process waits for another thread, and has none: those of the process that it was forked from."""
    tasks = _tasks(pid)
    return len(tasks) == 1 and _WAITS_FOR_THREAD in _wait_channel(tasks[0])


def _tasks(pid: int) -> list[Path]:
    """The threads of a process; none of one that has ended."""
    with suppress(OSError):
        return [*(PROC / str(pid) / "task").iterdir()]
    return []


def _wait_channel(task: Path) -> str:
    """The function of the kernel in which a thread sleeps."""
    with suppress(OSError):
        return (task / "wchan").read_text()
    return ""


def _pipes(pid: int, mode: int, *numbers: str) -> Iterator[str]:
    """The pipes among these open files of a process, which are open in this mode; among all if none is named."""
    folder = PROC / str(pid) / "fd"
    with suppress(OSError):  # it has ended, or belongs to another user
        for path in [folder / number for number in numbers] or folder.iterdir():
            with suppress(OSError):  # it has been closed
                if (target := str(path.readlink())).startswith("pipe:") and _mode(pid, path.name) == mode:
                    yield target


def _mode(pid: int, number: str) -> int:
    """How a file of a process is open: ``os.O_RDONLY``, ``os.O_WRONLY`` or ``os.O_RDWR``."""
    flags = _FLAGS.search((PROC / str(pid) / "fdinfo" / number).read_text())
    return int(flags[1], 8) & os.O_ACCMODE if flags else -1


def _sum(leader: int, processes: Mapping[int, _Process]) -> Usage:
    group = {
        pid: one for pid, one in processes.items() if one.session == leader or _is_descendant(leader, pid, processes)
    }
    return Usage(
        seconds=sum(one.seconds for one in group.values()),
        io_bytes=sum(map(_io_bytes, group)),
        runnable=any(one.state in {"R", "D"} for one in group.values()),
        killed=max((one.killed for pid, one in group.items() if pid != leader), default=0),
    )


def _processes() -> Iterable[tuple[int, _Process]]:
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended
            # proc(5): state, ppid, pgrp, session, ..., utime, stime, cutime, cstime, ..., exit_code
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            seconds = sum(map(int, fields[11:15])) / TICKS
            killed = int(fields[49]) & 0x7F if fields[0] == "Z" else 0  # as of waitpid(2)
            parent, session = int(fields[1]), int(fields[3])
            found = _Process(parent=parent, session=session, state=fields[0], seconds=seconds, killed=killed)
            yield int(path.parent.name), found


def _is_descendant(leader: int, pid: int, processes: Mapping[int, _Process]) -> bool:
    """Whether a process is the leader or one of its descendants."""
    while pid in processes and pid != leader:
        pid = processes[pid].parent
    return pid == leader


def _io_bytes(pid: int) -> int:
    with suppress(OSError, ValueError):  # it has ended, or belongs to another user
        lines = (PROC / str(pid) / "io").read_text().splitlines()
        return sum(int(value) for name, _, value in (line.partition(": ") for line in lines) if name in IO_COUNTERS)
    return 0


def signal_name(number: int) -> str:
    """``SIGKILL``; of a signal without a name, such as a real-time one, ``signal 37``."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
