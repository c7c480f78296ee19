"""Runs a script in a rank with the hooks, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Final

from kittrain.system.heartbeat import HeartbeatState, prepare
from tests.trainer.warm_agents import warm_agent_server, warm_environ

RANK: Final = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}


def run(folder: Path, script: str, *, python: str | Path = sys.executable, **env: str) -> HeartbeatState:
    """Run a script in a cold rank, in its folder; returns what the agent reads afterwards."""
    file = _prepare(folder, script)
    command = [python, "-P", "-m", "kittrain.agent.processes.worker", "train.py"]
    subprocess.run(command, cwd=folder, env={"PATH": "", "KIT_HEARTBEAT_FILE": str(file), **RANK, **env}, check=True)
    return HeartbeatState.read(file)


def run_warm(folder: Path, script: str, **env: str) -> HeartbeatState:
    """Run a script in a warm rank, which has imported torch, in its folder; returns what the agent reads afterwards."""
    return start_warm(folder, script, **env)()


def start_warm(folder: Path, script: str, **env: str) -> Callable[[], HeartbeatState]:
    """Start a script as ``run_warm`` does; what is returned waits for its end."""
    file, log = _prepare(folder, f"import os; os.chdir({str(folder)!r})\n{dedent(script)}"), folder / "output"
    log.touch()
    whole = {**warm_environ(), "KIT_HEARTBEAT_FILE": str(file), **RANK, **env}
    started = warm_agent_server().start([str(folder / "train.py")], whole, log)

    def end() -> HeartbeatState:
        assert started.wait(timeout=120) == 0, log.read_text()
        return HeartbeatState.read(file)

    return end


def _prepare(folder: Path, script: str) -> Path:
    (folder / "train.py").write_text(dedent(script))
    return prepare(folder / "heartbeat")
