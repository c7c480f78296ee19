"""Starts the processes of this node's ranks, forked or cold, and stops them with all their descendants."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kittrain.agent.processes.zygote import COLD_COMMAND, ForkRequest, Zygote, ZygoteLost
from kittrain.system.import_path import with_packages
from kittrain.system.processes import is_exiting

TORCHRUN_OPTIONS: Final = "PET_"  # prefix of the variables that it reads them from
LONGEST_WAIT: Final = 3600.0  # seconds for the end of a process
POLL_INTERVAL: Final = 0.05  # likewise, where the system tells of none


@dataclass(frozen=True)
class RankFiles:
    """The files that a rank and its agent share in one round.

    Args:
        folder: the round's folder.
        rank: the global rank.
    """

    folder: Path
    rank: int

    @property
    def pipe(self) -> Path:
        """The pipe for its output."""
        return self.folder / f"{self.rank}.pipe"

    @property
    def error(self) -> Path:
        """Its error, in torchrun's format."""
        return self.folder / f"{self.rank}.error.json"

    @property
    def heartbeat(self) -> Path:
        """Its heartbeat."""
        return self.folder / f"{self.rank}.heartbeat"

    @property
    def rounds(self) -> Path:
        """The pipe by which a rank that outlives its round is told of the next one."""
        return self.folder / f"{self.rank}.rounds"

    def move(self, other: RankFiles) -> None:
        """Its files become those of another round; an error is that of one round only."""
        for one in self.folder.glob(f"{self.rank}.*"):
            if one != self.error:
                one.rename(other.folder / f"{other.rank}{one.name.removeprefix(str(self.rank))}")

    @property
    def environment(self) -> Path:
        """The variables that its agent gave it, for commands that are run where it is."""
        return self.folder / f"{self.rank}.env"

    @property
    def finished(self) -> Path:
        """A marker that training has finished, written by any rank of the node."""
        return self.folder / "finished"


class Process(Protocol):
    """A child process, the leader of its session."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative if killed by a signal; None while running."""


@dataclass
class ForkedProcess:
    """A rank that was forked from the zygote; a cold one is a ``subprocess.Popen``."""

    pid: int
    _code: int | None = None

    def poll(self) -> int | None:
        """See the protocol."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code


class Starter:
    """Starts ranks.

    Args:
        command: ``script args`` or ``-m module args``.
        zygote: forks the ranks; None starts a new interpreter for each.
        packages: a folder on their import path, before the interpreter's own packages.
        log: called when the zygote is lost; from then on ranks start cold.
    """

    def __init__(
        self, command: Sequence[str], *, zygote: Zygote | None, packages: Path | None = None, log: Callable[[str], None]
    ) -> None:
        self._command = list(command)
        self._zygote = zygote
        self._packages = packages
        self._warm = False
        self._log = log

    def prepare(self) -> None:
        """Wait until the zygote is ready, before other nodes have to wait for this one."""
        if self._zygote and not self._warm:
            try:
                self._zygote.wait_ready()
                self._warm = True
            except ZygoteLost as error:
                self._fall_back_to_cold(error)

    def start(self, env: Mapping[str, str], output: Path) -> Process:
        """Start a rank that writes to a file or pipe; ``env`` is added to this process's environment.

        Without torchrun's options: a ``torchrun`` within a script would take them for its own, and wait for this job's
        nodes.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith(TORCHRUN_OPTIONS)}
        whole = with_packages(own | dict(env), self._packages)
        if self._zygote:
            packages = str(self._packages or "")
            request = ForkRequest(command=self._command, env=whole, output=str(output), packages=packages)
            try:
                return ForkedProcess(self._zygote.start(request))
            except ZygoteLost as error:
                self._fall_back_to_cold(error)
        command = [*COLD_COMMAND, *self._command]
        with output.open("wb") as stream:
            return subprocess.Popen(command, env=whole, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)

    def _fall_back_to_cold(self, error: ZygoteLost) -> None:
        self._log(f"warning: the zygote is lost ({error}); ranks start cold from now on")
        if self._zygote:
            self._zygote.close()  # it may only be slow: do not start a rank twice
            self._zygote = None


class RankProcesses:
    """The ranks of one round on this node, by local rank."""

    def __init__(self) -> None:
        self._processes: list[Process] = []
        self._running = 0  # when they were last waited for, and what was added since
        self._told = False  # whether one was sent a signal

    def add(self, process: Process) -> None:
        """Add a process."""
        self._processes.append(process)
        self._running += 1

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self._processes]

    def exit_codes(self) -> list[int | None]:
        """The exit codes; None while running."""
        return [process.poll() for process in self._processes]

    @property
    def gone(self) -> frozenset[int]:
        """The local ranks that have ended by themselves, or exit; none once one was sent a signal.

        Others may see that a rank is gone before it can be waited for.
        """
        if self._told:
            return frozenset()
        ranks = enumerate(self._processes)
        return frozenset(number for number, one in ranks if one.poll() is not None or is_exiting(one.pid))

    def await_end(self, seconds: float, *, also: int = -1) -> None:
        """Wait until one of them has ended since the last such wait, and so many seconds at most.

        Args:
            seconds: see above.
            also: a descriptor that ends the wait when it can be read; -1: none.
        """
        running = [process.pid for process in self._processes if process.poll() is None]
        before, self._running = self._running, len(running)
        if len(running) < before:
            return
        _await_one(running, seconds, also=also)

    def await_another(self, seconds: float, *, also: int) -> None:
        """Wait until one that runs now has ended, or a descriptor can be read, and so many seconds at most."""
        _await_one([process.pid for process in self._processes if process.poll() is None], seconds, also=also)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the running ones."""
        self._told = True
        _signal(self._processes, number)

    def stop(self, timeout: float, *, but: Collection[int] = ()) -> None:
        """Stop them and their descendants: SIGTERM, then SIGKILL after ``timeout`` seconds.

        Args:
            timeout: see above.
            but: process ids of ranks that go on.
        """
        self._told = True
        ending = [process for process in self._processes if process.pid not in but]
        _signal(ending, signal.SIGTERM)
        _await_all(ending, timeout)
        for process in ending:
            with suppress(ProcessLookupError):  # the group is empty
                os.killpg(process.pid, signal.SIGKILL)
        _await_all(ending, math.inf)
        for process in ending:
            _reap(process.pid)


def _await_all(processes: Sequence[Process], seconds: float) -> None:
    """Asks all of them, so that none that has ended stays a zombie."""
    deadline = time.monotonic() + seconds
    while running := [process.pid for process in processes if process.poll() is None]:
        if (left := deadline - time.monotonic()) <= 0:
            return
        _await_one(running, left)


def _await_one(pids: Iterable[int], seconds: float, *, also: int = -1) -> None:
    """Wait until a child process has ended, or a descriptor can be read, and so many seconds at most."""
    with ExitStack() as stack:
        handles = [_handle(pid, stack) for pid in pids]
        poll = select.poll()
        for number in filter(lambda one: one >= 0, [also, *handles]):
            poll.register(number, select.POLLIN)
        poll.poll(1000 * min(seconds, POLL_INTERVAL if -1 in handles else LONGEST_WAIT))


def _handle(pid: int, stack: ExitStack) -> int:
    """A descriptor that can be read once a process has ended; -1 if the system has none, or a sandbox forbids it."""
    try:
        number = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
    stack.callback(os.close, number)
    return number


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            os.kill(process.pid, number)


def _reap(group: int) -> None:
    """Reap the orphans of a killed process group; this process is their subreaper."""
    with suppress(ChildProcessError):  # none is left
        while True:
            os.waitpid(-group, 0)
