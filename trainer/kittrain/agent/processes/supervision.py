"""What an agent shares with the pod supervisor that started it (``kittrain.agent.processes.pod_supervisor``)."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from kittrain.system import console
from kittrain.system.after_fork import reset_after_fork, run_and_exit
from kittrain.system.child_processes import set_own_name
from kittrain.system.lines import ConnectionLost, LineStream
from kittrain.system.parent_death import die_with_parent


@dataclass(frozen=True, kw_only=True)
class Restart:
    """That an agent was started again in its pod.

    Attributes:
        count: how often this pod has started its agent again; 0: this is the first one.
        cause: how the one before ended, in a few words.
    """

    count: int = 0
    cause: str = ""


class SuccessorId:
    """The process that can become the next agent, in memory that the supervisor shares with those forked from it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def get(self) -> int:
        """Its process id; 0: there is none."""
        return int.from_bytes(self._memory[:8], "little")

    def set(self, pid: int) -> None:
        """Announce a process, or with 0 that there is none."""
        self._memory[:8] = pid.to_bytes(8, "little")


@dataclass(frozen=True, kw_only=True)
class Supervision:
    """What an agent knows of its supervisor, and how its zygote becomes the next agent.

    Attributes:
        agent: runs an agent; returns its exit code.
        supervisor: the supervisor's process id.
        started: when the supervisor started, in Unix seconds.
        name: the process name of agents.
        successor: shared with the supervisor.
        orders: the agents' end of the connection on which the supervisor has a successor take over.
        restart: why this agent was started.
    """

    agent: Callable[[Supervision], int]
    supervisor: int
    started: float
    name: str
    successor: SuccessorId
    orders: socket.socket
    restart: Restart = Restart()
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: str = field(default_factory=os.getcwd)

    def run(self, restart: Restart) -> NoReturn:
        """Run an agent in this process, which was forked from the supervisor or from a former agent."""
        run_and_exit(lambda: self._run(restart))

    def _run(self, restart: Restart) -> NoReturn:
        die_with_parent(self.supervisor)
        set_own_name(self.name)
        reset_after_fork(self.env)
        console.set_copy(None)
        os.chdir(self.folder)
        self.successor.set(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        sys.exit(self.agent(replace(self, restart=restart)))

    def stand_by(self) -> None:
        """In a zygote: announce that this process can become the next agent."""
        self.successor.set(os.getpid())

    def succeed(self) -> None:
        """In a zygote whose agent has ended: become the next agent when the supervisor says so.

        It returns only if the supervisor has ended.
        """
        lines = LineStream(self.orders.dup())
        with suppress(ConnectionLost):
            order = lines.receive() or {}
            lines.send({})
            lines.close()
            self.run(Restart(**order))
