"""Starts nodes: forked from a process that has imported torch, or as new interpreters if that fails."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kitctl.targets.local import launch, shim
from kitctl.targets.local.folder import NodeFolder
from kitctl.targets.local.forking import ForkServer, ForkServerLost
from kitctl.targets.local.records import SubmittedJob


@dataclass
class Starter:
    """Starts the nodes of one job. The fork server imports torch while the supervisor's loop continues."""

    job: SubmittedJob
    log: Callable[[str], None]
    _server: ForkServer | None = None
    _no_fork_server: bool = not sys.platform.startswith("linux")
    _shims: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ready(self, env: Mapping[str, str]) -> bool:
        """Whether a node with that environment can be started now; the first call starts the fork server."""
        self._shims = [process for process in self._shims if process.poll() is None]
        if self._no_fork_server:
            return True
        try:
            self._server = self._server or ForkServer(self.job, env)
            return self._server.warm()
        except (OSError, ForkServerLost) as error:
            self._give_up_fork_server(error)
            return True

    def start(self, node: NodeFolder, attempt: int, *, restarts: int, env: Mapping[str, str]) -> None:
        """Start an attempt; on return its shim holds the node's lock, or has ended."""
        shim_args = [str(node.path), str(attempt), str(restarts)]
        runs = self._fork(shim_args, env) or self._spawn(shim_args, env)
        while runs() and not node.alive():  # a node without its lock looks dead
            time.sleep(0.005)

    def close(self) -> None:
        """Kill the fork server."""
        if self._server:
            self._server.close()
            self._server = None

    def _fork(self, shim_args: list[str], env: Mapping[str, str]) -> Callable[[], bool] | None:
        """Fork a shim; returns a function that checks whether it runs, or None."""
        if not self._server:
            return None
        try:
            pid = self._server.start({"shim": shim_args, "agent": launch.arguments(self.job), "env": dict(env)})
        except ForkServerLost as error:
            self._give_up_fork_server(error)
            return None
        return partial(_runs, pid)

    def _spawn(self, shim_args: list[str], env: Mapping[str, str]) -> Callable[[], bool]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-S", "-E", shim.__file__, *shim_args, "--", *launch.command(self.job)],
            cwd=self.job.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._shims.append(process)
        return lambda: process.poll() is None

    def _give_up_fork_server(self, error: Exception) -> None:
        self.log(f"no fork server ({error}); each node imports torch itself from now on")
        self.close()  # it may be slow only, and must not start a node twice
        self._no_fork_server = True


def _runs(pid: int) -> bool:
    """Whether a process that is not a child of this one is running, and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
