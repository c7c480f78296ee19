"""Jobs of three nodes on this machine, each node a process group: ours, and torchrun's as it is and as it can be."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.measure import ROOT
from bench.recovery_ranks import SNAPSHOT_EVERY

NODES = (0, 1, 2)
POLL_SECONDS = 0.02
GRACE_SECONDS = 30.0
AGAIN = ("bash", "-c", 'until "$@"; do sleep 0.2; done', "again")  # what a container's restart policy would do
TUNED = (
    "join_timeout=900,last_call_timeout=3,close_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=5,"
    "read_timeout=15"
)

Start = Callable[[int, str, int, Path], tuple[list[str], dict[str, str]]]  # node, nnodes, port, folder


def ours(node: int, nodes: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The agent of this project."""
    env = {
        "PET_NNODES": nodes,
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}",
        "PET_RDZV_ID": "bench",
        "KIT_NODE_INDEX": str(node),
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_SNAPSHOT_EVERY": str(SNAPSHOT_EVERY),
        "KIT_BACKEND": "gloo",
    }
    return [sys.executable, "-P", "-m", "trainer.agent", "--", *ranks("trainer", folder)], env


def stock(node: int, nodes: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command of torchrun's documentation for elastic jobs, with restarts."""
    return torchrun(node, nodes, port, "--max-restarts=100", *ranks("plain", folder)), {}


def tuned(node: int, nodes: str, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """All that can be had from torchrun by its own options, in a loop that starts it again."""
    knobs = ("--max-restarts=1000", "--monitor-interval=0.1", f"--rdzv-conf={TUNED},is_host={node == 0}".lower())
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TORCH_ELASTIC_WORKER_IDENTICAL": "1"}
    return [*AGAIN, *torchrun(node, nodes, port, *knobs, *ranks("plain", folder))], env


def torchrun(node: int, nodes: str, port: int, *rest: str) -> list[str]:
    """A node's command; without ``is_host`` every node of this machine takes itself for the host."""
    place = (f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", "--rdzv-id=bench", "--rdzv-backend=c10d")
    host = () if any("is_host" in one for one in rest) else (f"--rdzv-conf=is_host={node == 0}".lower(),)
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=1"]
    return [*launch, *place, *host, *rest]


def ranks(kind: str, folder: Path) -> tuple[str, ...]:
    """What each rank runs."""
    return "-m", "bench.recovery_ranks", kind, str(folder)


RIVALS: Mapping[str, Start] = {"kitctl": ours, "tuned torchrun": tuned, "stock torchrun": stock}


@dataclass(kw_only=True)
class Rank:
    """What a rank's process has written of itself: moments in seconds of the machine's clock, steps as moments."""

    pid: int
    node: int = -1
    world: int = 0
    started: float = 0.0
    imported: float = 0.0
    joined: float = 0.0
    first: int = 0
    steps: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read its file, of which the last line may be incomplete."""
        rank = cls(pid=int(path.stem))
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            facts: dict[str, Any] = json.loads(line)
            if "stepped" in facts:
                rank.steps.append(facts["stepped"])
            else:
                vars(rank).update(facts)
        return rank

    @property
    def last(self) -> int:
        """The number of its last step."""
        return self.first + len(self.steps) - 1


class Job:
    """A running job; a context, at whose end nothing of it is left."""

    def __init__(self, start: Start, folder: Path, *, nodes: str) -> None:
        self._start = start
        self._folder = folder
        self._nodes = nodes
        self._port = free_port()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "snapshots").mkdir()

    def __enter__(self) -> Self:
        for node in NODES:
            self.start(node)
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._running):
            self.kill(node)

    def start(self, node: int) -> None:
        """Start a node."""
        command, env = self._start(node, self._nodes, self._port, self._folder)
        with (self._folder / f"node-{node}.log").open("ab") as log:
            self._running[node] = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "NODE": str(node), **env},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, node: int) -> None:
        """A machine that is lost: SIGKILL to the node's processes, its ranks' sessions included."""
        process = self._running.pop(node)
        for rank in self.ranks():
            if rank.node == node and alive(rank.pid):
                os.kill(rank.pid, signal.SIGKILL)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def terminate(self, node: int) -> None:
        """A node that is told to leave: SIGTERM, and SIGKILL after its grace."""
        process = self._running[node]
        os.killpg(process.pid, signal.SIGTERM)

    def replace(self, node: int) -> None:
        """Start a node's successor; what is left of a node that was told to leave ends first, within its grace."""
        if process := self._running.get(node):
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill(node)
        self.start(node)

    def kill_rank(self, node: int) -> None:
        """SIGKILL to the rank of a node."""
        (pid,) = (rank.pid for rank in self.ranks() if rank.node == node and alive(rank.pid))
        os.kill(pid, signal.SIGKILL)

    def ranks(self) -> list[Rank]:
        """All ranks of the job so far that have joined a group."""
        return [rank for rank in map(Rank.read, self._folder.glob("*.jsonl")) if rank.world]

    def await_group(self, size: int, *, steps: int, limit: float) -> bool:
        """Wait until a group of a size has taken some steps; whether it has, within a number of seconds."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            group = [rank for rank in self.ranks() if alive(rank.pid)]
            if len(group) == size and all(rank.world == size and len(rank.steps) >= steps for rank in group):
                return True
            time.sleep(POLL_SECONDS)
        return False


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
