"""Runs real agents on the loopback interface, for tests. Each node is a process group."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from tests.trainer.reports import report_in
from tests.trainer.warm_agents import WarmAgent, warm_agent_server, warm_environ

SCRIPTS = Path(__file__).parent / "scripts"
TIMEOUT = 400.0  # seconds until a test fails: other tests may keep the cores busy


class Nodes:
    """The nodes of one job; a context manager that kills those that still run at its end.

    Args:
        folder: a private folder.
        command: the ranks' command.
        nodes: the number of nodes, as ``2`` or ``1:2``.
        env: of all agents.
    """

    warm: ClassVar[bool] = True  # agents are forked from a process that has imported torch

    def __init__(self, folder: Path, *command: str, nodes: str = "2", **env: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.snapshots = folder / "snapshots"
        self.snapshots.mkdir(exist_ok=True)
        self._command = command
        self._env = {
            "PET_NNODES": nodes,
            "PET_RDZV_ENDPOINT": f"127.0.0.1:{self.port}",
            "PET_RDZV_ID": "test-run",
            "KIT_REPORT": f"file:{folder / 'report.json'}",
            "KIT_SNAPSHOT_DIR": str(self.snapshots),
            "KIT_POLICY_GRACE_PERIOD": "20",
            **env,
        }
        self._running: dict[int, subprocess.Popen[bytes] | WarmAgent] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for index in list(self._running):
            self.kill(index)

    def start(self, *indices: int, **env: str) -> None:
        """Start nodes; the output of a restarted node is appended."""
        for index in indices:
            own = {"KIT_NODE_INDEX": str(index), "KIT_TERMINATION_LOG": str(self.folder / f"end-{index}.json")}
            whole = {name: text for name, text in (warm_environ() | self._env | own | env).items() if text}
            self._running[index] = self._start(("-m", "kittrain.agent", "--", *self._command), whole, self._log(index))

    def _start(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes] | WarmAgent:
        if self.warm and "LD_PRELOAD" not in env:
            log.touch()
            return warm_agent_server().start(command, env, log)
        with log.open("ab") as stream:
            return subprocess.Popen(
                [sys.executable, *command], env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self, index: int) -> None:
        """SIGKILL the node's whole process group, like a lost machine."""
        process = self._running.pop(index)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ranks(self, index: int) -> list[int]:
        """The process ids of a node's ranks."""
        listed = Path(f"/proc/{self.pid(index)}/task/{self.pid(index)}/children").read_text().split()
        return [int(pid) for pid in listed if leads_session(int(pid))]  # unlike the hub and the zygote

    def signal(self, index: int, number: signal.Signals) -> None:
        """Signal only the agent, as a container runtime does."""
        self._running[index].send_signal(number)

    def pid(self, index: int) -> int:
        """The process id of a node's agent."""
        return self._running[index].pid

    def wait(self, index: int, seconds: float = TIMEOUT) -> int:
        """The exit code of a node's agent."""
        try:
            return self._running[index].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"node {index} did not end:\n{self.everything()}") from None

    def finish(self) -> None:
        """Make ``scripts/steps.py`` finish."""
        (self.snapshots / "enough").touch()

    def output(self, index: int) -> str:
        """The output of a node."""
        return self._log(index).read_text()

    def everything(self) -> str:
        """The output of all nodes."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("node-*.log")))

    def until(self, index: int, text: str, *, times: int = 1) -> None:
        """Wait until a node has printed a text."""
        self.until_true(lambda: self.output(index).count(text) >= times, f"{text!r} from node {index}")

    def until_true(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, f"no {what}:\n{self.everything()}"
            time.sleep(0.02)

    def report(self) -> dict[str, Any]:
        """The job's report."""
        report: dict[str, Any] = report_in(self.folder / "report.json")
        return report

    def end(self, index: int) -> dict[str, Any]:
        """A node's termination message."""
        end: dict[str, Any] = json.loads((self.folder / f"end-{index}.json").read_text())
        return end

    def _log(self, index: int) -> Path:
        return self.folder / f"node-{index}.log"


class ColdNodes(Nodes):
    """Nodes whose agents start in new interpreters, for tests of their start."""

    warm = False


# Not the global generator: tests seed it, and then two test processes take the same ports.
RANDOM: Final = random.SystemRandom()
PORTS: Final = range(11_000, 15_000)  # no cluster, no job of the local target and no outgoing connection takes one
CLAIMS: Final[deque[socket.socket]] = deque(maxlen=100)  # of the tests that may still run


def free_port() -> int:
    """A free port that no other test of this machine gets meanwhile: the agent that listens there starts later."""
    while True:
        number = RANDOM.choice(PORTS)
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                claim.bind(f"\0kit-test-port-{number}")
                probe.bind(("127.0.0.1", number))
            except OSError:
                claim.close()
                continue
        CLAIMS.append(claim)
        return number


def leads_session(pid: int) -> bool:
    """Whether a process leads a session; not one that has ended meanwhile."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
