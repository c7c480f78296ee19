"""The zygote: a process with torch imported that forks the ranks, in milliseconds instead of seconds.

The agent forks it after importing torch and before starting a thread. It starts no threads and uses neither devices nor
process groups: none of these survive a fork. In a pod it outlives a lost agent, and becomes the next one.

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
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from kittrain.agent.processes import worker
from kittrain.agent.processes.supervision import Supervision
from kittrain.system import cuda
from kittrain.system.after_fork import record_generators, reset_after_fork, run_and_exit
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
IMPORT_TIMEOUT: Final = 300.0  # seconds for all imports, on a busy host with a cold cache
START_TIMEOUT: Final = 30.0  # seconds for a rank to be forked
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

    def __init__(self, supervision: Supervision | None = None, *, library: bool = True) -> None:
        """Fork the zygote. The calling process must be single-threaded and a subreaper.

        Args:
            supervision: of the agent, whose successor the zygote is then.
            library: import the trainer library before the first rank, and not when there is nothing else to do.
        """
        agent = os.getpid()
        parent_end, child_end = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            parent_end.close()
            try:
                _serve(child_end, agent, supervision, library=library)
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


def _serve(connection: socket.socket, agent: int, supervision: Supervision | None, *, library: bool) -> None:
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
    with suppress(ConnectionLost):  # the agent has closed the connection or exited
        lines.send({"error": "" if usable else CUDA_ERROR})
        while True:
            request = lines.receive(None if library else PRELOAD_AFTER)
            if request is None:
                preload()
                library = True
                continue
            middle = os.fork()
            if not middle:
                _fork_rank(ForkRequest(**request), imported_in, lines, agent)
            os.waitpid(middle, 0)
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
    return before


def _fork_rank(request: ForkRequest, imported_in: Mapping[str, str], lines: LineStream, agent: int) -> NoReturn:
    """Fork the rank and exit, so that the agent becomes its parent and can wait for it."""
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == middle:
        time.sleep(0.0005)
    die_with_parent(agent)
    os.setsid()
    _set_up_process(request)
    lines.send({"pid": os.getpid()})
    lines.close()
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
