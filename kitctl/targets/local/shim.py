"""One node's keeper: starts the agent, keeps its log and its end. Run as a script, with the standard library alone.

    python shim.py NODE_FOLDER ATTEMPT RESTARTS -- COMMAND...

Or called by the trainer's fork server, which starts agents in a way of its own. What a container runtime's shim is to a
container: it outlives the supervisor, so the supervisor may die and come back while the node trains on, and its exit
code is never lost. When the agent is gone, so is everything below it.
"""

from __future__ import annotations

import contextlib
import ctypes
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


class Agent(Protocol):
    """A node's agent, whose process id is its process group's as well; ``subprocess.Popen`` is one."""

    pid: int
    stdout: IO[bytes] | None

    def wait(self) -> int:
        """Wait for its exit code, negative if a signal has killed it."""


def run(command: list[str]) -> Agent:
    """Start an agent in a session of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def main(argv: list[str], start: Callable[[list[str]], Agent] = run) -> int:
    """Run one attempt of one node; the exit code says nothing, ``<attempt>.exit.json`` does."""
    split = argv.index("--")
    folder, attempt, restarts = Path(argv[0]), argv[1], int(argv[2])
    with (folder / "lock").open("ab") as lock, (folder / f"{attempt}.log").open("ab", buffering=0) as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        adopt_orphans()
        try:
            agent = start(argv[split + 1 :])
        except OSError as error:
            log.write(stamped(f"[agent] cannot start {argv[split + 1]}: {error.strerror}\n".encode()))
            publish(folder / f"{attempt}.exit.json", {"time": time.time(), "code": 127})
            return 1
        publish(folder / f"{attempt}.start.json", {"time": time.time(), "pid": agent.pid, "restarts": restarts})
        copier = threading.Thread(target=copy, args=(agent.stdout, log))
        copier.start()
        code = agent.wait()
        end_orphans()  # they hold the log's pipe open: the copier ends when they have
        copier.join()
        end = {"code": code} if code >= 0 else {"signal": -code}
        publish(folder / f"{attempt}.exit.json", {"time": time.time(), **end})
    return 0


def copy(source: IO[bytes], log: IO[bytes]) -> None:
    """Copy lines, each with the time of its arrival, until nobody can write any more."""
    for line in source:
        log.write(stamped(line))


def stamped(line: bytes) -> bytes:
    """``line`` as kubelet would log it: RFC 3339 in UTC, always as wide."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"{now} ".encode() + (line if line.endswith(b"\n") else line + b"\n")


def publish(path: Path, value: dict[str, float]) -> None:
    """Write a JSON file, whole or not at all."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(json.dumps(value))
    draft.replace(path)


def adopt_orphans() -> None:
    """Become the parent of the agent's orphans, as PID 1 of a container is (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill what the agent left behind, as the end of a container does; each kill may orphan more."""
    while pids := orphans():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def orphans() -> list[int]:
    """The processes whose parent this one has become; none where there is no /proc."""
    mine = str(os.getpid())
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if stat.read_text().rpartition(")")[2].split()[1] == mine:  # proc(5): state, then ppid
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
