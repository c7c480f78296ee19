"""Complete jobs on the local target, run by the command line as by a user."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from kitctl.cli.main import main
from kitctl.state.phase import TERMINAL_PHASES
from kitctl.targets.local.folder import JobFolder, state_home
from tests.local.warm_fork_server import environ

WAIT_SECONDS = 600.0  # far more than needed: other tests may keep the cores busy


def _family(process: int) -> list[int]:
    """A process, and all that it and those have started."""
    children: list[int] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError):  # the thread has ended
            children += map(int, path.read_text(encoding="utf-8").split())
    return [process, *(one for child in children for one in _family(child))]


def _send(number: signal.Signals, processes: list[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # one may have ended by itself
            os.kill(process, number)


class Kit:
    """The command line, and its files in the state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in the background."""
        command = [sys.executable, "-m", "kitctl", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, exit_code: int = 0) -> str:
        """A command's output; its exit code must be as expected."""
        process = self.start(*words)
        output, errors = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == exit_code, f"kitctl {' '.join(words)}: {process.returncode}\n{output}\n{errors}"
        return output + errors

    def read(self, *words: str) -> str:
        """A command's output. It runs in this process, since starting Python for each poll is expensive."""
        with redirect_stdout(io.StringIO()) as output:
            assert main(words) == 0
        return output.getvalue()

    def status(self, name: str) -> dict[str, Any]:
        """A job's state as JSON."""
        state: dict[str, Any] = json.loads(self.read("status", name, "-o", "json"))
        return state

    def until(self, name: str, check: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """A job's state once ``check`` holds for it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not check(state := self.status(name)):
            waiting = time.monotonic() < deadline and state["phase"] not in TERMINAL_PHASES
            assert waiting, f"never came true of {state}\n{self.run('logs', name, '--tail', '40')}"
            time.sleep(0.2)
        return state

    def job(self, name: str) -> JobFolder:
        """A job's folder."""
        return JobFolder(state_home() / "jobs" / "default" / name)

    def agent(self, name: str, index: int) -> int:
        """The process id, and process group, of a node's agent, once it is started."""
        node, deadline = self.job(name).node(index), time.monotonic() + WAIT_SECONDS
        while (started := node.started(node.attempts)) is None:
            assert time.monotonic() < deadline, f"node {index} has no agent"
            time.sleep(0.02)
        return started.pid

    def family(self, name: str, index: int) -> list[int]:
        """A node's agent, and all that it has started, directly or not."""
        return _family(self.agent(name, index))

    @contextmanager
    def killing(self, name: str, *nodes: int) -> Iterator[None]:
        """All processes of these nodes stand still, and die after that: one by one, the first would be replaced."""
        lost = [pid for node in nodes for pid in self.family(name, node)]
        _send(signal.SIGSTOP, lost)
        try:
            yield
        finally:
            _send(signal.SIGKILL, lost)

    def kill(self, name: str, *nodes: int) -> None:
        """All processes of these nodes die at once."""
        with self.killing(name, *nodes):
            pass

    def snapshots(self, name: str) -> Path:
        """The folder of a job's snapshots."""
        return state_home() / "snapshots" / "default" / name


@pytest.fixture(scope="session")
def fork_server_environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With this in their environment, commands have local jobs forked from one process with torch imported.

    Tests of how jobs start override it.
    """
    return environ(tmp_path_factory)


@pytest.fixture
def kit(tmp_path: Path, fork_server_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    for name, value in fork_server_environ.items():
        monkeypatch.setenv(name, value)
    os.environ.pop("KITCTL_TARGET", None)
    yield kit
    for name in kit.read("list", "-o", "name").split():
        kit.read("delete", name, "--snapshots", "-y")
