"""The zygote: a process with torch imported that forks the ranks, in milliseconds instead of seconds.

The agent forks it after importing torch and before starting a thread. It starts no threads and uses neither devices nor
process groups: none of these survive a fork. In a pod it outlives a lost agent, and becomes the next one.

A process of that size takes some 40 ms to fork twice. So while there is nothing else to do, it forks the ranks of the
next start ahead; they wait for their command.

Why: decision 11.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from kittrain.agent.processes import worker
from kittrain.agent.processes.supervision import Supervision
from kittrain.system import cuda
from kittrain.system.after_fork import drop_finalizers, record_generators, reset_after_fork, run_and_exit
from kittrain.system.child_processes import show_as
from kittrain.system.import_path import add_packages, with_packages
from kittrain.system.imports import without_gc
from kittrain.system.lines import ConnectionLost, LineStream, Message
from kittrain.system.parent_death import die_with_parent
from kittrain.system.reexec import reexec_reason
from kittrain.torch_private.early import IMPORTED_AT_FIRST_STEP, read_log_level

# What training scripts import of the library: 100 modules, half of all that a rank has.
PRELOADED: Final = (
    "kittrain.rank.world.distributed",
    "kittrain.rank.world.evaluation",
    "kittrain.rank.training.loop",
    "kittrain.rank.training.run",
)
# -P: modules in the working directory must not hide this package's
COLD_COMMAND: Final = (sys.executable, "-P", "-m", "kittrain.agent.processes.worker")
PRELOAD_AFTER: Final = 10.0  # seconds of idleness, for a script that does not name the library
FORK_AHEAD_AFTER: Final = 1.0  # seconds of idleness, before each
IMPORT_TIMEOUT: Final = 300.0  # seconds for all imports, on a busy host with a cold cache
START_TIMEOUT: Final = 30.0  # seconds for a rank to be forked
WAITING: Final = "kit-forked"  # name of a process that was forked ahead
CUDA_ERROR: Final = "an import has initialized CUDA, so forked processes could not use a GPU"


class ZygoteLost(Exception):
    """The zygote is gone, or does not answer."""


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """A rank to fork: its command (see ``worker``), whole environment, and the file or pipe for its output.

    ``packages`` is a folder that the environment has on the import path, beyond what the zygote has; empty: none.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    output: str
    packages: str = ""


class Zygote:
    """The agent's side of the zygote; use it only from the agent's main thread."""

    def __init__(self, supervision: Supervision | None = None, *, library: bool = True, ahead: int = 0) -> None:
        """Fork the zygote. The calling process must be single-threaded and a subreaper.

        Args:
            supervision: of the agent, whose successor the zygote is then.
            library: import the trainer library before the first rank, and not when there is nothing else to do.
            ahead: how many ranks to fork when there is nothing else to do.
        """
        agent = os.getpid()
        parent_end, child_end = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            parent_end.close()
            try:
                _serve(child_end, agent, supervision, library=library, ahead=ahead)
            except BaseException:  # noqa: BLE001  must not unwind into the agent's frames
                traceback.print_exc()
            finally:
                os._exit(1)
        child_end.close()
        self._lines = LineStream(parent_end)

    def wait_ready(self) -> None:
        """Wait until the imports are done. Call it once, before the first start.

        Raises:
            ZygoteLost: the zygote cannot be used.
        """
        error = self._receive(IMPORT_TIMEOUT).get("error")
        if error:
            raise ZygoteLost(error)

    def start(self, request: ForkRequest) -> int:
        """Start a rank as a child of this process, in its own session; returns its process id.

        Raises:
            ZygoteLost: the rank was not started.
        """
        try:
            self._lines.send(asdict(request))
        except ConnectionLost as error:
            raise ZygoteLost(str(error)) from error
        return int(self._receive(START_TIMEOUT)["pid"])

    def leave(self) -> None:
        """Let go of a zygote that is the agent's successor, for when the agent has ended."""
        self._lines.close()

    def close(self) -> None:
        """Kill the zygote. Ranks go on, except one that has not reported its process id yet."""
        self._lines.close()
        with suppress(ProcessLookupError, ChildProcessError):  # already closed
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _receive(self, timeout: float) -> Message:
        try:
            answer = self._lines.receive(timeout)
        except ConnectionLost as error:
            raise ZygoteLost(str(error)) from error
        if not answer:
            raise ZygoteLost(f"no answer within {timeout:.0f} s")
        return answer


def _serve(
    connection: socket.socket, agent: int, supervision: Supervision | None, *, library: bool, ahead: int
) -> None:
    """Fork ranks until the agent exits; then take its place, if it has a supervisor that wants that."""
    show_as("kit-zygote")
    if not supervision:
        die_with_parent(agent)
    for number in (signal.SIGTERM, signal.SIGINT):  # they are meant for the agent
        signal.signal(number, signal.SIG_IGN)
    imported_in = preload(library=library)
    lines = LineStream(connection)
    usable = not cuda.initialized()
    if supervision and usable:
        supervision.stand_by()
    waiting = ForkedAhead(lines, agent)
    with suppress(ConnectionLost):  # the agent has closed the connection or exited
        lines.send({"error": "" if usable else CUDA_ERROR})
        while True:
            more = FORK_AHEAD_AFTER if len(waiting) < ahead else None
            request = lines.receive(more if library else PRELOAD_AFTER)
            if request:
                waiting.start(request, imported_in)
            elif library:
                waiting.fork(imported_in)
            else:
                preload()
                library = True
    waiting.close()
    lines.close()
    if supervision:
        supervision.succeed()


def names_library(command: Sequence[str]) -> bool:
    """Whether a rank's command (see ``worker``) may import the trainer library: if it is a script, its text names it.

    A script whose other files import it has it, too, from the zygote if that has been idle, else by itself.
    """
    try:
        return command[0] == "-m" or b"kittrain" in Path(command[0]).read_bytes()
    except OSError:  # the rank will tell
        return False


def preload(*, library: bool = True) -> Mapping[str, str]:
    """Import what ranks need, so that forks share it; returns the environment at import."""
    before = dict(os.environ)
    with without_gc(), cuda.avoid_initialization():
        for name in (*(PRELOADED if library else ()), IMPORTED_AT_FIRST_STEP):
            with suppress(ImportError):  # a rank that needs it will fail with the same error
                import_module(name)
        record_generators()
        drop_finalizers("torch")
    return before


class ForkedAhead:
    """Forks ranks, and keeps those that wait for their command.

    They are children of the agent already. Each ends with the agent, and with the zygote, whose end of its connection
    no rank has.

    Args:
        lines: to the agent.
        agent: its process id.
    """

    def __init__(self, lines: LineStream, agent: int) -> None:
        self._lines = lines
        self._agent = agent
        self._waiting: list[LineStream] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, request: Message, imported_in: Mapping[str, str]) -> None:
        """Start a rank, in a process that waits if there is one."""
        while self._waiting:
            with closing(self._waiting.pop(0)) as one, suppress(ConnectionLost):  # it was killed
                one.send(request)
                return
        if self._forks():
            self._run(ForkRequest(**request), imported_in)

    def fork(self, imported_in: Mapping[str, str]) -> None:
        """Fork a process that waits."""
        ours, theirs = socket.socketpair()
        if not self._forks():
            theirs.close()
            self._waiting.append(LineStream(ours))
            return
        ours.close()
        show_as(WAITING)
        own = LineStream(theirs)
        try:
            request = own.receive()
        except ConnectionLost:
            os._exit(0)
        own.close()
        self._run(ForkRequest(**request or {}), imported_in)

    def close(self) -> None:
        """Let those that wait end."""
        for one in self._waiting:
            one.close()

    def _forks(self) -> bool:
        """Fork twice, so that the agent is the parent; returns whether this is the new process."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return False
        middle = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == middle:
            time.sleep(0.0005)
        die_with_parent(self._agent)
        self.close()
        return True

    def _run(self, request: ForkRequest, imported_in: Mapping[str, str]) -> NoReturn:
        """Become the rank."""
        os.setsid()
        _set_up_process(request)
        self._lines.send({"pid": os.getpid()})
        self._lines.close()
        packages = Path(request.packages) if request.packages else None
        folders = [_first_folder(request.command), *filter(None, [packages])]
        if reason := reexec_reason(with_packages(imported_in, packages), request.env, folders):
            sys.stderr.write(f"warning: this rank starts in a new interpreter, which takes longer: {reason}\n")
            sys.stderr.flush()
            os.execve(sys.executable, [*COLD_COMMAND, *request.command], dict(request.env))  # noqa: S606  the user's command
        run_and_exit(lambda: worker.main(list(request.command)))


def _set_up_process(request: ForkRequest) -> None:
    """Set what ``exec`` would set: output, environment, ``sys.path``."""
    output = os.open(request.output, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    reset_after_fork(request.env)
    read_log_level()
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the agent's working directory
    if request.packages:
        add_packages(Path(request.packages), request.env)


def _first_folder(command: Sequence[str]) -> Path:
    """The first entry of a rank's ``sys.path`` (``worker``)."""
    return Path.cwd() if command[0] == "-m" else Path(command[0]).resolve().parent
