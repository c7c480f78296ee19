"""How nodes are started: forked from a process that has torch imported; from a new interpreter where that fails."""

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
from kitctl.targets.local.records import Job


@dataclass
class Starter:
    """Starts the nodes of one job. The supervisor's loop goes on while the fork server gets warm."""

    job: Job
    say: Callable[[str], None]
    _server: ForkServer | None = None
    _cold: bool = not sys.platform.startswith("linux")
    _shims: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ready(self, env: Mapping[str, str]) -> bool:
        """Whether a node with that environment can be started now; what that takes is prepared for the first one."""
        self._shims = [process for process in self._shims if process.poll() is None]
        if self._cold:
            return True
        try:
            self._server = self._server or ForkServer(self.job, env)
            return self._server.warm()
        except (OSError, ForkServerLost) as error:
            self._go_on_cold(error)
            return True

    def start(self, node: NodeFolder, attempt: int, *, restarts: int, env: Mapping[str, str]) -> None:
        """Start an attempt; when this returns its shim holds the node's lock, or has ended."""
        arguments = [str(node.path), str(attempt), str(restarts)]
        runs = self._fork(arguments, env) or self._spawn(arguments, env)
        while runs() and not node.alive():  # until it does it would look dead
            time.sleep(0.005)

    def close(self) -> None:
        """End the fork server."""
        if self._server:
            self._server.close()
            self._server = None

    def _fork(self, arguments: list[str], env: Mapping[str, str]) -> Callable[[], bool] | None:
        """Fork a shim; gives a function that tells whether it runs, or None."""
        if not self._server:
            return None
        try:
            pid = self._server.start({"shim": arguments, "agent": launch.arguments(self.job), "env": dict(env)})
        except ForkServerLost as error:
            self._go_on_cold(error)
            return None
        return partial(_runs, pid)

    def _spawn(self, arguments: list[str], env: Mapping[str, str]) -> Callable[[], bool]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", shim.__file__, *arguments, "--", *launch.command(self.job)],
            cwd=self.job.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._shims.append(process)
        return lambda: process.poll() is None

    def _go_on_cold(self, error: Exception) -> None:
        self.say(f"no fork server ({error}); each node imports torch for itself from now on")
        self.close()  # it may only be slow, and a node must not be started twice
        self._cold = True


def _runs(pid: int) -> bool:
    """Whether a process runs that is no child of this one: it has not ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
