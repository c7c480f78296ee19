"""A process that has imported what agents import, and that tests' agents are forked from: torch takes 4 s of a core.

It forks them the way an agent forks its ranks (``kittrain.node.zygote``), so that an agent's own warm process is warm
as soon as it is there. A test that is about how an agent starts does without.
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

from kittrain.node.ranks import ForkedProcess
from kittrain.node.zygote import IMPORT_TIMEOUT, PRELOADED, START_TIMEOUT, ForkRequest, Zygote
from kittrain.system.imports import without_gc
from kittrain.system.lines import ConnectionLost, LineStream
from kittrain.system.parent_death import adopt_orphans, die_with_parent

AGENTS = "kittrain.node.supervise"  # what an agent imports
POLL = 0.01  # seconds between two looks for an end
REAP = 0.1  # seconds between two looks for others' orphans


@dataclass
class WarmAgent:
    """An agent that was forked; like ``subprocess.Popen``."""

    server: WarmAgentServer
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative if a signal has killed it; None while it runs."""
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
        """A signal, while it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


class WarmAgentServer:
    """The tests' end; there is one for each process that runs tests, and it ends with that."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # The last argument is what tells an agent from others by its command line.
            command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), "kittrain.agent"]
            env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": search_path()}
            subprocess.Popen(command, stdin=theirs.fileno(), env=env, start_new_session=True)
        self._lines = LineStream(ours)
        assert self._lines.receive(IMPORT_TIMEOUT), "the warm process does not get warm"

    def start(self, command: Sequence[str], env: Mapping[str, str], output: Path) -> WarmAgent:
        """Start ``-m module args`` with that environment and output, as a process group of its own."""
        pid = self.request({"start": asdict(ForkRequest(command=command, env=env, output=str(output)))})
        assert pid, "nothing was started"
        return WarmAgent(self, pid)

    def request(self, request: Mapping[str, object]) -> int | None:
        """Ask, and get a process id or an exit code."""
        self._lines.send(dict(request))
        answer = self._lines.receive(START_TIMEOUT)
        assert answer, "the warm process does not answer"
        number: int | None = answer["number"]
        return number


def search_path() -> str:
    """PYTHONPATH of the warm process, and so of all agents: they would start as new interpreters with another one."""
    return os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])


@cache
def warm_agent_server() -> WarmAgentServer:
    """This process's own."""
    return WarmAgentServer()


def serve(tests: int) -> None:
    """Start agents, and tell how they ended."""
    die_with_parent(tests)
    adopt_orphans()
    with without_gc():
        for name in (AGENTS, *PRELOADED):
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
    """Let those go that agents have left behind, as PID 1 would."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if int(child) not in agents:
            with suppress(ChildProcessError):
                os.waitpid(int(child), os.WNOHANG)


if __name__ == "__main__":
    try:
        serve(int(sys.argv[1]))
    except ConnectionLost:  # the tests have ended
        sys.exit()
