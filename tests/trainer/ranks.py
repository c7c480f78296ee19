"""Processes that look like ranks whose agent is the test's process: a fixture for conftest modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kittrain.system import heartbeat

WORKER = (sys.executable, "-P", "-m", "kittrain.agent.processes.worker")
StartRank = Callable[..., int]


@pytest.fixture
def start_rank(tmp_path: Path) -> Iterator[StartRank]:
    """Starts a rank with a script, and returns its process id once it has created the file ``ready``."""
    started = []

    def start(rank: int, script: str) -> int:
        (tmp_path / f"{rank}.py").write_text(script)
        os.mkfifo(tmp_path / f"{rank}.pipe")
        pipe = os.open(tmp_path / f"{rank}.pipe", os.O_RDWR)
        beat = heartbeat.prepare(tmp_path / f"{rank}.heartbeat")
        ready, child = os.pipe()
        env = os.environ | {"KIT_HEARTBEAT_FILE": str(beat), "RANK": str(rank), "READY": str(child)}
        command = [*WORKER, str(tmp_path / f"{rank}.py")]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, start_new_session=True, pass_fds=[child]
        )
        os.close(child)
        started.append(process)
        printed = os.read(ready, 1)
        assert printed, os.read(pipe, 9999).decode()
        os.close(pipe)
        os.close(ready)
        return process.pid

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
