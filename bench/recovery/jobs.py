"""Jobs whose nodes run in network namespaces: of kitctl, of stock torchrun, and of tuned torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from bench.measure import ROOT
from bench.recovery.network import Machine
from bench.recovery.ranks import SNAPSHOT_EVERY

POLL_SECONDS = 0.02
GRACE_SECONDS = 30.0
PORT = 29400
GROUP_TIMEOUT = 30  # process-group timeout in seconds of tuned ranks: detects unreachable peers
RESTART_LOOP = ("bash", "-c", 'until "$@"; do sleep 0.2; done', "restart")  # like a container's restart policy
TUNED = (
    "join_timeout=900,last_call_timeout=3,close_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=5,"
    "read_timeout=15"
)

Start = Callable[[int, Machine, Machine, str, Path], tuple[list[str], dict[str, str]]]


def ours(
    node: int, _machine: Machine, host: Machine, nodes: str, folder: Path, loop: str = "trainer"
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of kitctl's agent, whose ranks have one of the loops of ``ranks``."""
    env = {
        "PET_NNODES": nodes.partition("+")[0],
        "KIT_SPARES": nodes.partition("+")[2] or "0",
        "PET_RDZV_ENDPOINT": f"{host.address}:{PORT}",
        "PET_RDZV_ID": "bench",
        "KIT_NODE_INDEX": str(node),
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_SNAPSHOTS_EVERY_STEPS": str(SNAPSHOT_EVERY),
        "KIT_BACKEND": "gloo",
    }
    return [sys.executable, "-P", "-m", "kittrain.agent", "--", *ranks(loop, folder)], env


def stock(node: int, machine: Machine, host: Machine, nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of torchrun for elastic jobs as in its documentation, with restarts."""
    command = torchrun(machine, host, nodes, f"is_host={node == 0}", "--max-restarts=100", *ranks("plain", folder))
    return command, {"GLOO_SOCKET_IFNAME": "eth0"}


def tuned(node: int, machine: Machine, host: Machine, nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of torchrun with the options that make it recover fastest, restarted in a loop."""
    options = ("--max-restarts=1000", "--monitor-interval=0.1")
    command = torchrun(machine, host, nodes, f"{TUNED},is_host={node == 0}", *options, *ranks("plain", folder))
    env = {
        "GLOO_SOCKET_IFNAME": "eth0",
        "GROUP_TIMEOUT": str(GROUP_TIMEOUT),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
    }
    return [*RESTART_LOOP, *command], env


def torchrun(machine: Machine, host: Machine, nodes: str, conf: str, *rest: str) -> list[str]:
    """A node's command: in a namespace, torchrun needs its address and that of the host as options."""
    endpoint = (f"--rdzv-endpoint={host.address}:{PORT}", f"--local-addr={machine.address}")
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={nodes.partition('+')[0]}",
        "--nproc-per-node=1",
    ]
    return [*launch, "--rdzv-id=bench", "--rdzv-backend=c10d", *endpoint, f"--rdzv-conf={conf.lower()}", *rest]


def ranks(kind: str, folder: Path) -> tuple[str, ...]:
    """The command of each rank."""
    return "-m", "bench.recovery.ranks", kind, str(folder)


RIVALS: Mapping[str, Start] = {
    "kitctl": ours,
    "kitctl, own loop": partial(ours, loop="run"),
    "kitctl, plain script": partial(ours, loop="plain"),
    "tuned torchrun": tuned,
    "stock torchrun": stock,
}


@dataclass(kw_only=True)
class Rank:
    """What a rank's process has recorded; all times are those of the monotonic clock in seconds."""

    file: Path
    node: int = -1
    world: int = 0
    started: float = 0.0
    imported: float = 0.0
    joined: float = 0.0
    first: int = 0
    steps: list[float] = field(default_factory=list)
    _read: int = 0  # bytes of the file

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self.file.stem)

    @property
    def last(self) -> int:
        """The number of its last step."""
        return self.first + len(self.steps) - 1

    def read_on(self) -> None:
        """Read the lines that were added; an incomplete last line is left for later."""
        with self.file.open("rb") as file:
            file.seek(self._read)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            facts: dict[str, Any] = json.loads(line)
            if "stepped" in facts:
                self.steps.append(facts["stepped"])
            else:
                vars(self).update(facts)


def joined(files: Iterable[Path], known: dict[Path, Rank]) -> list[Rank]:
    """Read on in all ranks' files, and add new ones to ``known``; returns the ranks that have joined a group."""
    for file in files:
        known.setdefault(file, Rank(file=file)).read_on()
    return [rank for rank in known.values() if rank.world]


def await_group(current: Callable[[], Sequence[Rank]], size: int, *, steps: int, limit: float) -> bool:
    """Wait up to ``limit`` seconds until the current ranks are a group of this size and have taken some steps."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        group = current()
        if len(group) == size and all(rank.world == size and len(rank.steps) >= steps for rank in group):
            return True
        time.sleep(POLL_SECONDS)
    return False


class Job:
    """A running job; a context manager that kills all of its processes on exit.

    Args:
        start: returns the command and environment of a node.
        folder: for the job's files.
        machines: one for each node, and a spare one.
        nodes: number of nodes, such as ``3``, ``2:3``, or ``3+1`` with one that stands by.
    """

    def __init__(self, start: Start, folder: Path, machines: Sequence[Machine], *, nodes: str) -> None:
        self._start = start
        self._folder = folder
        self._machines = list(machines)  # by node; the last one is spare
        self._nodes = nodes
        self._running: dict[Machine, subprocess.Popen[bytes]] = {}
        self._ranks: dict[Path, Rank] = {}
        (folder / "snapshots").mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in list(self._running):
            self._end(machine)

    def start(self, node: int) -> None:
        """Start a node."""
        machine = self._machines[node]
        command, env = self._start(node, machine, self._machines[0], self._nodes, self._folder)
        with (self._folder / f"node-{node}.log").open("ab") as log:
            self._running[machine] = subprocess.Popen(
                machine.command(command),
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "NODE": str(node), **env},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, node: int) -> str:
        """The output of a node's processes."""
        return (self._folder / f"node-{node}.log").read_text(encoding="utf-8")

    @property
    def ended(self) -> bool:
        """Whether the processes of all nodes have ended."""
        return all(process.poll() is not None for process in self._running.values())

    def kill_rank(self, node: int) -> None:
        """Send SIGKILL to the rank of a node."""
        (pid,) = (rank.pid for rank in self.ranks() if rank.node == node and alive(rank.pid))
        os.kill(pid, signal.SIGKILL)

    def kill(self, node: int) -> None:
        """Send SIGKILL to all processes of a node."""
        self._end(self._machines[node])

    def terminate(self, node: int) -> None:
        """Send SIGTERM to a node."""
        os.killpg(self._running[self._machines[node]].pid, signal.SIGTERM)

    def replace(self, node: int) -> None:
        """Start a node again after it has terminated, or was killed at the end of its grace period."""
        self._machines[node].wait_for_exit(GRACE_SECONDS)
        self.start(node)

    def disconnect(self, node: int) -> None:
        """Disconnect a node from the network, without closing connections; its processes keep running."""
        self._machines[node].disconnect()

    def reconnect(self, node: int) -> None:
        """Undo ``disconnect``."""
        self._machines[node].reconnect()

    def move(self, node: int) -> None:
        """Start a replacement of a node on the spare machine, while the old one still runs."""
        self._machines[node], self._machines[-1] = self._machines[-1], self._machines[node]
        self.start(node)

    def discard(self, _node: int) -> None:
        """Kill the old node after ``move``, and reconnect its machine, which becomes the spare one."""
        self._end(self._machines[-1])
        self._machines[-1].reconnect()

    def _end(self, machine: Machine) -> None:
        machine.kill()
        if process := self._running.pop(machine, None):
            process.wait()

    def ranks(self) -> list[Rank]:
        """All ranks that have joined a group, including those that have ended."""
        return joined(self._folder.glob("*.jsonl"), self._ranks)

    def await_group(self, size: int, *, steps: int, limit: float) -> bool:
        """Wait up to ``limit`` seconds for a group of this size to take some steps; returns whether it has."""
        return await_group(lambda: [rank for rank in self.ranks() if alive(rank.pid)], size, steps=steps, limit=limit)


def alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
