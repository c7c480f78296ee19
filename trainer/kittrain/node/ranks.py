"""The processes of this node's ranks: started warm where it works, watched, stopped with all their offspring."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kittrain.node.zygote import COLD, Order, Zygote, ZygoteLost
from kittrain.outcome import completion

POLL: Final = 0.01  # seconds between two looks at ranks that are being stopped


@dataclass(frozen=True)
class RankFiles:
    """The files that a rank and its agent share in one round.

    Args:
        folder: of the round.
        rank: its number in the world.
    """

    folder: Path
    rank: int

    @property
    def pipe(self) -> Path:
        """Takes its output."""
        return self.folder / f"{self.rank}.pipe"

    @property
    def error(self) -> Path:
        """Where it leaves its error."""
        return self.folder / f"{self.rank}.error.json"

    @property
    def heart(self) -> Path:
        """Where it tells what it does."""
        return self.folder / f"{self.rank}.heart"

    @property
    def finished(self) -> Path:
        """Where it, or another rank of the node, says that training has finished."""
        return self.folder / "finished"


class Process(Protocol):
    """A child of this process, the leader of its session."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative if a signal has killed it; None while it runs."""


@dataclass
class Forked:
    """A rank that was forked from the zygote; ``subprocess.Popen`` is one that was not."""

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
        zygote: to fork them from; None starts a new interpreter for each.
        say: told when the zygote is lost, after which each rank imports for itself.
    """

    def __init__(self, command: Sequence[str], *, zygote: Zygote | None, say: Callable[[str], None]) -> None:
        self._command = list(command)
        self._zygote = zygote
        self._warm = False
        self._say = say

    def prepare(self) -> None:
        """Wait until ranks can be started without delay; others should not have to wait for that."""
        if self._zygote and not self._warm:
            try:
                self._zygote.await_warmth()
                self._warm = True
            except ZygoteLost as error:
                self._go_on_cold(error)

    def start(self, env: Mapping[str, str], output: Path) -> Process:
        """Start a rank whose output goes to a file or pipe; ``env`` is added to this process's own."""
        whole = {**os.environ, **env}
        if self._zygote:
            try:
                return Forked(self._zygote.start(Order(command=self._command, env=whole, output=str(output))))
            except ZygoteLost as error:
                self._go_on_cold(error)
        command = [*COLD, *self._command]
        with output.open("wb") as stream:
            return subprocess.Popen(command, env=whole, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)

    def _go_on_cold(self, error: ZygoteLost) -> None:
        self._say(f"warning: the warm process is lost ({error}); ranks start cold from now on")
        if self._zygote:
            self._zygote.close()  # it may only be slow, and a rank must not be started twice
            self._zygote = None


class Ranks:
    """The ranks of one round on this node, by local rank."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def add(self, process: Process) -> None:
        """One more."""
        self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def codes(self) -> list[int | None]:
        """Their exit codes; None for those that run."""
        return [process.poll() for process in self._processes]

    def signal(self, number: signal.Signals) -> None:
        """A signal to those that run."""
        for process in self._processes:
            if process.poll() is None:
                os.kill(process.pid, number)

    def stop(self, patience: float) -> None:
        """End all of them and whatever they have started: SIGTERM, and SIGKILL after ``patience`` seconds."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + patience
        while None in self.codes() and time.monotonic() < deadline:
            time.sleep(POLL)
        for process in self._processes:
            with suppress(ProcessLookupError):  # no process of that group is left
                os.killpg(process.pid, signal.SIGKILL)
        while None in self.codes():
            time.sleep(POLL)
        for process in self._processes:
            _bury(process.pid)


def _bury(group: int) -> None:
    """Wait for the orphans of a killed process group, which are this process's children now."""
    with suppress(ChildProcessError):  # there are none any more
        while True:
            os.waitpid(-group, 0)


def rank_environment(group: Any, worker: Any, *, restarts: int, files: RankFiles) -> dict[str, str]:
    """What torchrun tells a rank, from torch's own record of the group (its documentation lists it), and its files."""
    spec = group.spec
    return {
        "RANK": str(worker.global_rank),
        "LOCAL_RANK": str(worker.local_rank),
        "GROUP_RANK": str(group.group_rank),
        "ROLE_RANK": str(worker.role_rank),
        "ROLE_NAME": spec.role,
        "WORLD_SIZE": str(worker.world_size),
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "GROUP_WORLD_SIZE": str(group.group_world_size),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "MASTER_ADDR": group.master_addr,
        "MASTER_PORT": str(group.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
        "TORCHELASTIC_ERROR_FILE": str(files.error),
        "KIT_HEARTBEAT_FILE": str(files.heart),
        completion.VARIABLE: str(files.finished),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
