"""kitctl's command line for jobs with frameworks, on this machine."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.frameworks.ranks import OFFLINE
from tools.test_frameworks import INTERPRETER

PATIENCE = 300.0  # seconds


def kitctl(command: str, *words: str, interpreter: str | Path = INTERPRETER) -> str:
    """A command's output, for the local target; its exit code must be 0."""
    line = [str(interpreter), "-m", "kitctl", command, "--target", "local", *words]
    done = subprocess.run(line, check=False, env={**os.environ, **OFFLINE}, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} {words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def until(text: str, command: str, *words: str) -> str:
    """A command's output once it has this text."""
    deadline = time.monotonic() + PATIENCE
    while text not in (output := kitctl(command, *words)):
        assert time.monotonic() < deadline, output
        time.sleep(0.5)
    return output
