"""A process that has imported what ranks import, and that they are forked from: in milliseconds, not in seconds.

It is forked from the agent once torch is there and before the agent has a second thread. It starts no thread itself
and touches neither a device nor a process group: none of these survive a fork.
"""

from __future__ import annotations

import ctypes
import gc
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

from kittrain.node import worker
from kittrain.system import cuda
from kittrain.system.imports import uncollected
from kittrain.system.inherited import stale
from kittrain.system.lifeline import end_with
from kittrain.system.lines import ConnectionLost, Lines, Message
from kittrain.system.reborn import live, note_generators, take_over

# What a script imports to train, and what torch imports for itself at the first optimizer step (1.3 s).
PRELOADED: Final = (
    "kittrain.world.distributed",
    "kittrain.world.evaluation",
    "kittrain.training.loop",
    "torch._dynamo",
)
# -P: modules in the working folder must not hide this package's
COLD: Final = (sys.executable, "-P", "-m", "kittrain.node.worker")
IMPORT_PATIENCE: Final = 300.0  # seconds for all imports, on a machine that is busy and has read none of it yet
START_PATIENCE: Final = 30.0  # seconds for a rank to be forked
CUDA_REFUSAL: Final = "an import has initialized CUDA, and a process that is forked after that cannot use a GPU"


class ZygoteLost(Exception):
    """The warm process is gone, or does not answer."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A rank to fork: its command as ``worker`` takes it, its whole environment, and what its output is appended to."""

    command: Sequence[str]
    env: Mapping[str, str]
    output: str


class Zygote:
    """The agent's end; only the agent's main thread uses it."""

    def __init__(self) -> None:
        """Fork the process. Call this while there is one thread, in a process that adopts orphans."""
        agent = os.getpid()
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            try:
                _serve(theirs, agent)
            except BaseException:  # noqa: BLE001  nothing may go back into the agent's frames
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        self._lines = Lines(ours)

    def await_warmth(self) -> None:
        """Wait until all is imported; to be called once, before the first start.

        Raises:
            ZygoteLost: it will not be.
        """
        refusal = self._hear(IMPORT_PATIENCE).get("refusal")
        if refusal:
            raise ZygoteLost(refusal)

    def start(self, order: Order) -> int:
        """Start a rank as a child of this process, in a session of its own; gives its process id.

        Raises:
            ZygoteLost: it cannot be started this way.
        """
        try:
            self._lines.send(asdict(order))
        except ConnectionLost as error:
            raise ZygoteLost(str(error)) from error
        return int(self._hear(START_PATIENCE)["pid"])

    def close(self) -> None:
        """End the process; ranks live on, but for one that could not yet tell its process id."""
        self._lines.close()
        with suppress(ProcessLookupError, ChildProcessError):  # it was closed before
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _hear(self, patience: float) -> Message:
        try:
            answer = self._lines.receive(patience)
        except ConnectionLost as error:
            raise ZygoteLost(str(error)) from error
        if not answer:
            raise ZygoteLost(f"no answer in {patience:.0f} s")
        return answer


def _serve(connection: socket.socket, agent: int) -> None:
    """Fork ranks until the agent is gone."""
    end_with(agent)
    for number in (signal.SIGTERM, signal.SIGINT):  # meant for the agent
        signal.signal(number, signal.SIG_IGN)
    imported_in = preload()
    lines = Lines(connection)
    with suppress(ConnectionLost):  # the agent needs no more ranks, or is gone
        lines.send({"refusal": CUDA_REFUSAL if cuda.initialized() else ""})
        while order := lines.receive():
            middle = os.fork()
            if not middle:
                _fork_rank(Order(**order), imported_in, lines, agent)
            os.waitpid(middle, 0)


def preload() -> Mapping[str, str]:
    """Import what ranks will, so that what is forked from here shares it; gives the environment that it is done in."""
    before = dict(os.environ)
    with uncollected(), cuda.uninitialized():
        for name in PRELOADED:
            with suppress(ImportError):  # a rank that needs it will tell the same
                import_module(name)
    gc.collect()
    note_generators()
    gc.freeze()
    return before


def _fork_rank(order: Order, imported_in: Mapping[str, str], lines: Lines, agent: int) -> NoReturn:
    """Fork the rank and end, so that the agent adopts it and learns how it ends."""
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == middle:
        time.sleep(0.0005)
    end_with(agent)
    os.setsid()
    _become(order)
    lines.send({"pid": os.getpid()})
    lines.close()
    if reason := stale(imported_in, order.env, _first_folder(order.command)):
        sys.stderr.write(f"warning: this rank starts as a new interpreter, which takes longer: {reason}\n")
        sys.stderr.flush()
        os.execve(sys.executable, [*COLD, *order.command], dict(order.env))  # noqa: S606  the same command as ever
    live(lambda: worker.main(list(order.command)))


def _become(order: Order) -> None:
    """Take over what ``exec`` would have given."""
    output = os.open(order.output, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    take_over(order.env)
    _read_log_level()
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the agent's working folder


def _first_folder(command: Sequence[str]) -> Path:
    """Where a rank looks for modules first (``worker``)."""
    return Path.cwd() if command[0] == "-m" else Path(command[0]).resolve().parent


def _read_log_level() -> None:
    """Have torch read TORCH_CPP_LOG_LEVEL again, which an agent may have set for itself; Python has no name for it."""
    name = "TORCH_CPP_LOG_LEVEL"
    given = os.environ.get(name)
    os.environ.setdefault(name, "WARNING")  # torch's default, which it does not go back to by itself
    with suppress(KeyError, OSError, AttributeError):  # other builds log in another way
        library = Path(str(sys.modules["torch"].__file__)).with_name("lib") / "libc10.so"
        ctypes.CDLL(str(library))._ZN3c1011initLoggingEv()  # noqa: SLF001  c10::initLogging()
    if given is None:
        del os.environ[name]
