"""Runs real ranks on the loopback interface, for tests, forked from a process that has imported torch."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.trainer.nodes import TIMEOUT, free_port

# Ranks are forked from this server, so its imports are free. Each child imports pytest, as the parent's main module,
# and torch imports its compiler at the first optimizer step.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "torch._dynamo", "kittrain.workloads.digits", "kittrain.workloads.toy", "tests.trainer.saved"]
)


TRAINING_SECONDS = 1500.0  # for a workload that trains to its target, on two busy cores


class Ranks:
    """The ranks of one world; can be restarted on the same snapshots."""

    def __init__(self, folder: Path, *command: str, **env: str) -> None:
        self.folder = folder
        self.snapshots = folder / "snapshots"
        self.records = folder / "records"
        self.log = folder / "log"
        self._command = command
        self._env = {"KIT_SNAPSHOT_DIR": str(self.snapshots), "KIT_BACKEND": "gloo", **env}
        self._processes: list[BaseProcess] = []

    def start(self, size: int, *more: str) -> None:
        """Start a world of this size."""
        port = free_port()
        self._processes = []
        for rank in range(size):
            env = {**self._env, **placed(rank, size, port)}
            self._processes.append(fork(run_module, [*self._command, *more], env, self.log))

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Signal one rank."""
        pid = self._processes[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def wait(self, seconds: float = TIMEOUT) -> list[int | None]:
        """The exit codes by rank; None for one that was killed after ``seconds``."""
        return [finish(process, seconds) for process in self._processes]

    def run(self, size: int, *more: str, seconds: float = TIMEOUT) -> list[int | None]:
        """Start and wait."""
        self.start(size, *more)
        return self.wait(seconds)

    def recorded(self) -> list[dict[str, Any]]:
        """All records that the ranks wrote with ``--record``."""
        files = self.records.glob("*.jsonl")
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def losses(self) -> list[float]:
        """The losses by step, of the latest generation that took each step."""
        latest = {line["step"]: line["loss"] for line in sorted(self.recorded(), key=lambda line: line["generation"])}
        return [latest[step] for step in sorted(latest)]


def placed(rank: int, size: int, port: int) -> dict[str, str]:
    """The environment of a rank, with all ranks on this machine."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in own.items()}}


def fork(target: Callable[..., None], *args: Any) -> BaseProcess:
    """Call a module's function in a new process."""
    process = FORKS.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def start_processes_as_usual() -> None:
    """Let this rank's own processes start in the default way, as a script's do.

    Those of a forkserver's child would be forked by another server, which imports torch anew for each of them.
    """
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)  # the default comes first


def finish(process: BaseProcess, seconds: float = TIMEOUT) -> int | None:
    """Wait for the exit code, negative if killed by a signal."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


def run_module(command: Sequence[str], env: dict[str, str], log: Path) -> None:
    """Run a module as ``python -m`` does, with stdout and stderr appended to a file."""
    os.environ.update(env)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = list(command)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
