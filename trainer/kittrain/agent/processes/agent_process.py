"""The process of a pod's agent: started by its supervisor, forked or as the successor of the one before."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from kittrain.agent.processes.supervision import Restart, SuccessorId, Supervision
from kittrain.system.child_processes import children, kill_children, own_name
from kittrain.system.lines import ConnectionLost, LineStream
from kittrain.system.oom import OOMKills
from kittrain.system.processes import signal_name

STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})
AWAITED: Final = STOP | {signal.SIGCHLD}
ANSWER_TIMEOUT: Final = 5.0  # seconds for a successor to answer
SHORT_LIFE: Final = 2.0  # seconds; a successor that ended by itself after less may be broken, and so may be its own


@dataclass(frozen=True, kw_only=True)
class End:
    """How an agent ended.

    Attributes:
        code: its exit code; negative if a signal killed it.
        lived: seconds from its start.
        out_of_memory: explains a SIGKILL; may be empty.
    """

    code: int
    lived: float
    out_of_memory: str = ""

    @property
    def description(self) -> str:
        """In a few words."""
        if self.code >= 0:
            return f"the agent exited with {self.code}"
        why = f": {self.out_of_memory}" if self.out_of_memory else ""
        return f"the agent was killed by {signal_name(-self.code)}{why}"


class AgentProcess:
    """Starts agents, one after the other, and waits for each. The signals AWAITED have to be blocked.

    Args:
        agent: runs an agent; returns its exit code.
    """

    def __init__(self, agent: Callable[[Supervision], int]) -> None:
        self._successor = SuccessorId()
        self.stopped = False  # whether a stop signal came, which the agent got as well
        self._agent = agent
        self._name = own_name()
        self._started = time.time()
        self._orders: LineStream | None = None  # to successors of the agent that was forked last
        self._pid = 0

    def run(self, restart: Restart) -> End:
        """Run one agent to its end."""
        before, started = OOMKills.now(), time.monotonic()
        succeeded = self._succeed(restart)
        if not succeeded:
            self._fork(restart)
        code = self._wait()
        lived = time.monotonic() - started
        if succeeded and lived < SHORT_LIFE and code != -signal.SIGKILL:
            self._successor.set(0)
        explained = OOMKills.now().since(before) if code == -signal.SIGKILL else ""
        return End(code=code, lived=lived, out_of_memory=explained)

    def _succeed(self, restart: Restart) -> bool:
        """Let the last agent's successor take over, if there is one; kill all other processes that it left."""
        successor = self._successor.get()
        if not self._orders or successor not in children():
            kill_children()
            return False
        kill_children(but=successor)
        try:
            self._orders.send(asdict(restart))
            if self._orders.receive(ANSWER_TIMEOUT) is not None:
                self._pid = successor
                return True
        except ConnectionLost:
            pass
        kill_children()
        return False

    def _fork(self, restart: Restart) -> None:
        if self._orders:
            self._orders.close()
        ours, theirs = socket.socketpair()
        supervision = Supervision(
            agent=self._agent,
            supervisor=os.getpid(),
            started=self._started,
            name=self._name,
            successor=self._successor,
            orders=theirs,
        )
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            supervision.run(restart)
        theirs.close()
        self._orders = LineStream(ours)

    def _wait(self) -> int:
        """Its exit code; passes stop signals on to it, and reaps orphans meanwhile."""
        while (code := self._reap()) is None:
            number = signal.sigwait(AWAITED)
            if number in STOP:
                self.stopped = True
                os.kill(self._pid, number)
        return code

    def _reap(self) -> int | None:
        """Wait for all children that have ended; returns the agent's exit code if it is one of them."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if not pid:
                return code
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
