"""A job of the local target for the demo and the benchmarks: runs kitctl's command line, and kills nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from kitctl.targets.local.folder import JobFolder, state_home
from kitjob.report import Report

POLL_SECONDS = 0.01


@dataclass(frozen=True)
class LocalJob:
    """A job in the default namespace of this machine."""

    name: str

    @classmethod
    def submit(cls, *arguments: str) -> LocalJob:
        """``kitctl submit --target local ARGUMENTS``."""
        done = kitctl("submit", "--target", "local", "-n", "default", "-o", "name", *arguments, stdout=subprocess.PIPE)
        done.check_returncode()
        return cls(done.stdout.strip())

    @property
    def folder(self) -> JobFolder:
        """The job's folder."""
        return JobFolder(state_home() / "jobs" / "default" / self.name)

    @property
    def report(self) -> Report:
        """Its agents' report."""
        return self.folder.report or Report()

    def wait_for(self, reached: Callable[[LocalJob], bool]) -> bool:
        """Poll until ``reached``; False if the job ends first."""
        while not reached(self):
            if self.folder.result:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def kill(self, node: int) -> None:
        """SIGKILL to a node's whole process group, agent and ranks."""
        found = self.folder.node(node)
        started = found.started(found.attempts)
        assert started, f"node {node} of {self.name} has not started"
        os.killpg(started.pid, signal.SIGKILL)


def kitctl(*arguments: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a kitctl command, with this process's stderr."""
    return subprocess.run([sys.executable, "-m", "kitctl", *arguments], check=False, stdout=stdout, text=True)
