"""The shim of one node: starts the agent, writes its log and its exit code. A script; standard library only.

    python shim.py NODE_FOLDER ATTEMPT RESTARTS -- COMMAND...

The trainer's fork server calls it as well, with its own way to start an agent. Like a container runtime's shim it
outlives the supervisor: the supervisor may be killed and started again while the node continues, and the exit code is
never lost. When the agent ends, the shim kills all processes below it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Protocol

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
CHECK_SECONDS = 1.0  # between two looks for the node's folder
MISSING_CHECKS = 3  # in a row: a network's file system may lose sight of a folder for a moment
END_SECONDS = 10.0  # for the agent to end by itself
RECORD = 256  # bytes of a record, and more: room for it is taken before the agent starts, while there is some


class Agent(Protocol):
    """A node's agent, the leader of its process group; ``subprocess.Popen`` is one."""

    pid: int
    stdout: IO[bytes] | None

    def wait(self) -> int:
        """Wait for its exit code; negative if a signal killed it."""


def run(command: list[str]) -> Agent:
    """Start an agent in its own session."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def main(argv: list[str], start: Callable[[list[str]], Agent] = run) -> int:
    """Run one attempt of one node; its result is in ``<attempt>.exit.json``, not in this exit code."""
    split = argv.index("--")
    folder, attempt, restarts = Path(argv[0]), argv[1], int(argv[2])
    with (folder / "lock").open("ab") as lock, (folder / f"{attempt}.log").open("ab", buffering=0) as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        adopt_orphans()
        for name in ("start", "exit"):
            reserve(folder / f"{attempt}.{name}.json")
        try:
            agent = start(argv[split + 1 :])
        except OSError as error:
            log.write(stamped(f"[agent] cannot start {argv[split + 1]}: {error.strerror}\n".encode()))
            publish(folder / f"{attempt}.exit.json", {"time": time.time(), "code": 127})
            return 1
        with contextlib.suppress(FileNotFoundError):  # the folder was deleted: the node ends soon
            publish(folder / f"{attempt}.start.json", {"time": time.time(), "pid": agent.pid, "restarts": restarts})
        copier = threading.Thread(target=copy, args=(agent.stdout, log))
        copier.start()
        threading.Thread(target=end_without, args=(folder, agent.pid, log), daemon=True).start()
        code = agent.wait()
        kill_orphans()  # they hold the log's pipe open, and the copier reads until it is closed
        copier.join()
        end = {"code": code} if code >= 0 else {"signal": -code}
        with contextlib.suppress(FileNotFoundError):  # the folder was deleted, and the node ended with it
            publish(folder / f"{attempt}.exit.json", {"time": time.time(), **end})
    return 0


def end_without(folder: Path, agent: int, log: IO[bytes]) -> None:
    """End the agent once the node's folder is gone: nobody could ever stop a node that nothing knows of."""
    missing = 0
    while missing < MISSING_CHECKS:
        time.sleep(CHECK_SECONDS)
        missing = 0 if folder.is_dir() else missing + 1
    log.write(stamped(f"[agent] {folder} is gone: the node ends\n".encode()))
    for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, 0.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent, number)
        time.sleep(seconds)


def copy(source: IO[bytes], log: IO[bytes]) -> None:
    """Copy lines, each with its arrival time, until the pipe is closed.

    Those that find no room on the disk are left out, and counted once there is some: if nobody read the pipe, the agent
    and its ranks would stop in their next line.
    """
    lost, why, cut = 0, "", False
    for line in source:
        told = stamped(f"[agent] {lost} lines before this one could not be kept: {why}\n".encode()) if lost else b""
        text = (b"\n" if cut else b"") + told + stamped(line)
        try:
            written = log.write(text)
        except OSError as error:
            lost, why = lost + 1, error.strerror or ""
            continue
        cut = written < len(text)  # the disk has become full within it, maybe within what is told
        lost, why = (lost + 1, os.strerror(errno.ENOSPC)) if cut else (0, "")


def stamped(line: bytes) -> bytes:
    """``line`` as a kubelet logs it, with an RFC 3339 time in UTC of fixed width."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"{now} ".encode() + (line if line.endswith(b"\n") else line + b"\n")


def reserve(path: Path) -> None:
    """Take the room that a record needs."""
    path.with_name(f".{path.name}").write_bytes(b" " * RECORD)


def publish(path: Path, value: dict[str, float]) -> None:
    """Write a record atomically, in the room that was reserved for it: also on a disk that is full by now."""
    draft = path.with_name(f".{path.name}")
    with draft.open("r+b") as file:
        file.write(json.dumps(value).encode().ljust(RECORD))
    draft.replace(path)


def adopt_orphans() -> None:
    """Become the parent of the agent's orphans, like PID 1 of a container (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans() -> None:
    """Kill the processes that the agent left, as at the end of a container; each kill may orphan more."""
    while pids := orphans():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def orphans() -> list[int]:
    """The processes that this one is the parent of; empty where there is no /proc."""
    mine = str(os.getpid())
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if stat.read_text().rpartition(")")[2].split()[1] == mine:  # proc(5): state, then ppid
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
