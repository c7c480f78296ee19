"""Processes that look like ranks whose agent is the test's process: a fixture for conftest modules; and bare pairs."""

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


def pair(folder: Path, script: str, case: str, *, wait_for: int = 2) -> list[str]:
    """What two processes print that run a script with a folder, their rank and a case; of the first ``wait_for``."""
    (folder / "rank.py").write_text(script)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", folder / "rank.py", folder, str(rank), case], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        return [one.communicate(timeout=120)[0] for one in ranks[:wait_for]]
    finally:
        for one in ranks:
            one.kill()
            one.wait()


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
