"""Runs a script in a cold rank with the hooks, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from kittrain.system.heartbeat import HeartbeatState, prepare


def run(folder: Path, script: str, *, python: str | Path = sys.executable, **env: str) -> HeartbeatState:
    """Run a script in a cold rank; returns what the agent reads afterwards."""
    (folder / "train.py").write_text(dedent(script))
    file = prepare(folder / "heartbeat")
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}
    command = [python, "-P", "-m", "kittrain.node.worker", "train.py"]
    subprocess.run(command, cwd=folder, env={"PATH": "", "KIT_HEARTBEAT_FILE": str(file), **rank, **env}, check=True)
    return HeartbeatState.read(file)
