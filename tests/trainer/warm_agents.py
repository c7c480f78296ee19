"""Forks the agents of tests from a process that has imported torch, which takes 4 s of a core.

It uses the agents' own zygote (``kittrain.agent.processes.zygote``), so an agent's zygote is ready at once. Tests of an
agent's start do not use it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from kittrain.agent.processes.ranks import ForkedProcess
from kittrain.agent.processes.zygote import IMPORT_TIMEOUT, PRELOADED, START_TIMEOUT, ForkRequest, Zygote
from kittrain.system.imports import without_gc
from kittrain.system.lines import ConnectionLost, LineStream
from kittrain.system.parent_death import adopt_orphans, die_with_parent
from kittrain.torch_private.early import IMPORTED_AT_FIRST_STEP

AGENTS = "kittrain.agent.rounds.supervise"  # the module that agents import
POLL = 0.01  # seconds, while waiting for an exit
REAP = 0.1  # seconds between two reaps of orphans


@dataclass
class WarmAgent:
    """A forked agent, with the interface of ``subprocess.Popen``."""

    server: WarmAgentServer
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative if killed by a signal; None while running."""
        if self.returncode is None:
            self.returncode = self.server.request({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait for its exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("an agent", timeout)
            time.sleep(POLL)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


class WarmAgentServer:
    """The tests' side; one for each process that runs tests, and it ends with that."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # The last argument marks agents by their command line.
            command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), "kittrain.agent"]
            subprocess.Popen(command, stdin=theirs.fileno(), env=warm_environ(), start_new_session=True)
        self._lines = LineStream(ours)
        assert self._lines.receive(IMPORT_TIMEOUT), "the warm process is not ready"

    def start(self, command: Sequence[str], env: Mapping[str, str], output: Path) -> WarmAgent:
        """Start ``-m module args`` in its own process group."""
        pid = self.request({"start": asdict(ForkRequest(command=command, env=env, output=str(output)))})
        assert pid, "nothing was started"
        return WarmAgent(self, pid)

    def request(self, request: Mapping[str, object]) -> int | None:
        """Send a request; returns a process id or an exit code."""
        self._lines.send(dict(request))
        answer = self._lines.receive(START_TIMEOUT)
        assert answer, "the warm process does not answer"
        number: int | None = answer["number"]
        return number


def warm_environ() -> dict[str, str]:
    """The warm process's environment. What it starts with other values of some variables starts a new interpreter."""
    search_path = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": search_path}


@cache
def warm_agent_server() -> WarmAgentServer:
    """The server of this test process."""
    return WarmAgentServer()


def serve(tests: int) -> None:
    """Start agents and report their exit codes."""
    die_with_parent(tests)
    adopt_orphans()
    with without_gc():
        for name in (AGENTS, *PRELOADED, IMPORTED_AT_FIRST_STEP):
            import_module(name)
    zygote = Zygote()
    zygote.wait_ready()
    lines = LineStream(socket.socket(fileno=0))
    lines.send({"ready": True})
    agents: dict[int, ForkedProcess] = {}
    while True:
        request = lines.receive(REAP)
        if request and "start" in request:
            pid = zygote.start(ForkRequest(**request["start"]))
            agents[pid] = ForkedProcess(pid)
            lines.send({"number": pid})
        elif request:
            lines.send({"number": agents[request["ended"]].poll()})
        reap(agents)


def reap(agents: Mapping[int, ForkedProcess]) -> None:
    """Reap the orphans of agents, as PID 1 would."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if int(child) not in agents:
            with suppress(ChildProcessError):
                os.waitpid(int(child), os.WNOHANG)


if __name__ == "__main__":
    try:
        serve(int(sys.argv[1]))
    except ConnectionLost:  # the tests have exited
        sys.exit()
