"""Jobs whose nodes run in network namespaces: ours, and torchrun's as it is and as it can be tuned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.measure import ROOT
from bench.recovery_network import Place
from bench.recovery_ranks import SNAPSHOT_EVERY

POLL_SECONDS = 0.02
GRACE_SECONDS = 30.0
PORT = 29400
GROUP_TIMEOUT = 30  # seconds without progress after which tuned ranks give up: of use when a peer is silent
AGAIN = ("bash", "-c", 'until "$@"; do sleep 0.2; done', "again")  # what a container's restart policy would do
TUNED = (
    "join_timeout=900,last_call_timeout=3,close_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=5,"
    "read_timeout=15"
)

Start = Callable[[int, Place, Place, str, Path], tuple[list[str], dict[str, str]]]


def ours(node: int, _place: Place, host: Place, nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The agent of this project."""
    env = {
        "PET_NNODES": nodes,
        "PET_RDZV_ENDPOINT": f"{host.address}:{PORT}",
        "PET_RDZV_ID": "bench",
        "KIT_NODE_INDEX": str(node),
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_SNAPSHOT_EVERY": str(SNAPSHOT_EVERY),
        "KIT_BACKEND": "gloo",
    }
    return [sys.executable, "-P", "-m", "kittrain.agent", "--", *ranks("trainer", folder)], env


def stock(node: int, place: Place, host: Place, nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command of torchrun's documentation for elastic jobs, with restarts."""
    command = torchrun(place, host, nodes, f"is_host={node == 0}", "--max-restarts=100", *ranks("plain", folder))
    return command, {"GLOO_SOCKET_IFNAME": "eth0"}


def tuned(node: int, place: Place, host: Place, nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """All that can be had from torchrun by its own options, in a loop that starts it again."""
    knobs = ("--max-restarts=1000", "--monitor-interval=0.1")
    command = torchrun(place, host, nodes, f"{TUNED},is_host={node == 0}", *knobs, *ranks("plain", folder))
    env = {
        "GLOO_SOCKET_IFNAME": "eth0",
        "GROUP_TIMEOUT": str(GROUP_TIMEOUT),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
    }
    return [*AGAIN, *command], env


def torchrun(place: Place, host: Place, nodes: str, conf: str, *rest: str) -> list[str]:
    """A node's command: torchrun is told what it could not find out in a namespace, its address and who is the host."""
    where = (f"--rdzv-endpoint={host.address}:{PORT}", f"--local-addr={place.address}", f"--rdzv-conf={conf.lower()}")
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=1"]
    return [*launch, "--rdzv-id=bench", "--rdzv-backend=c10d", *where, *rest]


def ranks(kind: str, folder: Path) -> tuple[str, ...]:
    """What each rank runs."""
    return "-m", "bench.recovery_ranks", kind, str(folder)


RIVALS: Mapping[str, Start] = {"kitctl": ours, "tuned torchrun": tuned, "stock torchrun": stock}


@dataclass(kw_only=True)
class Rank:
    """What a rank's process writes of itself: moments in seconds of the machine's clock, steps as moments."""

    diary: Path
    node: int = -1
    world: int = 0
    started: float = 0.0
    imported: float = 0.0
    joined: float = 0.0
    first: int = 0
    steps: list[float] = field(default_factory=list)
    _read: int = 0  # bytes of the diary

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self.diary.stem)

    @property
    def last(self) -> int:
        """The number of its last step."""
        return self.first + len(self.steps) - 1

    def read_on(self) -> None:
        """Read what its process has written since; the last line may be incomplete."""
        with self.diary.open("rb") as diary:
            diary.seek(self._read)
            news = diary.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            facts: dict[str, Any] = json.loads(line)
            if "stepped" in facts:
                self.steps.append(facts["stepped"])
            else:
                vars(self).update(facts)


class Job:
    """A running job; a context, at whose end nothing of it is left.

    Args:
        start: whose.
        folder: of its own.
        places: a machine for each node, and a spare one.
        nodes: how many it asks for, as ``3`` or ``2:3``.
    """

    def __init__(self, start: Start, folder: Path, places: Sequence[Place], *, nodes: str) -> None:
        self._start = start
        self._folder = folder
        self._places = list(places)  # by node; the last one is spare
        self._nodes = nodes
        self._running: dict[Place, subprocess.Popen[bytes]] = {}
        self._ranks: dict[Path, Rank] = {}
        (folder / "snapshots").mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for place in list(self._running):
            self._end(place)

    def start(self, node: int) -> None:
        """Start a node."""
        place = self._places[node]
        command, env = self._start(node, place, self._places[0], self._nodes, self._folder)
        with (self._folder / f"node-{node}.log").open("ab") as log:
            self._running[place] = subprocess.Popen(
                place.command(command),
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "NODE": str(node), **env},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, node: int) -> str:
        """What a node's processes have said."""
        return (self._folder / f"node-{node}.log").read_text(encoding="utf-8")

    @property
    def ended(self) -> bool:
        """Whether all nodes have ended by themselves."""
        return all(process.poll() is not None for process in self._running.values())

    def kill_rank(self, node: int) -> None:
        """SIGKILL to the rank of a node."""
        (pid,) = (rank.pid for rank in self.ranks() if rank.node == node and alive(rank.pid))
        os.kill(pid, signal.SIGKILL)

    def kill(self, node: int) -> None:
        """SIGKILL to all processes of a node."""
        self._end(self._places[node])

    def terminate(self, node: int) -> None:
        """Tell a node to leave: SIGTERM."""
        os.killpg(self._running[self._places[node]].pid, signal.SIGTERM)

    def replace(self, node: int) -> None:
        """Start a node again that was told to leave: when it has left, and SIGKILL after its grace."""
        self._places[node].await_silence(GRACE_SECONDS)
        self.start(node)

    def cut(self, node: int) -> None:
        """Cut a node off the network, silently; its processes live on."""
        self._places[node].cut()

    def mend(self, node: int) -> None:
        """Connect it again."""
        self._places[node].mend()

    def move(self, node: int) -> None:
        """Start a node's successor on the spare machine, while the old one still runs."""
        self._places[node], self._places[-1] = self._places[-1], self._places[node]
        self.start(node)

    def discard(self, _node: int) -> None:
        """Make the machine spare again that a node was moved from."""
        self._end(self._places[-1])
        self._places[-1].mend()

    def _end(self, place: Place) -> None:
        place.kill()
        if process := self._running.pop(place, None):
            process.wait()

    def ranks(self) -> list[Rank]:
        """All ranks of the job so far that have joined a group."""
        for diary in self._folder.glob("*.jsonl"):
            rank = self._ranks.setdefault(diary, Rank(diary=diary))
            rank.read_on()
        return [rank for rank in self._ranks.values() if rank.world]

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
