"""kitctl's command line for jobs with frameworks, on this machine."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.frameworks.ranks import OFFLINE
from tools.test_frameworks import INTERPRETER

PATIENCE = 300.0  # seconds


def kitctl(verb: str, *words: str, interpreter: str | Path = INTERPRETER) -> str:
    """A verb's output, for the local target; its exit code must be 0."""
    command = [str(interpreter), "-m", "kitctl", verb, "--target", "local", *words]
    done = subprocess.run(command, check=False, env={**os.environ, **OFFLINE}, capture_output=True, text=True)
    assert done.returncode == 0, f"{verb} {words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def until(text: str, verb: str, *words: str) -> str:
    """A verb's output once it has this text."""
    deadline = time.monotonic() + PATIENCE
    while text not in (output := kitctl(verb, *words)):
        assert time.monotonic() < deadline, output
        time.sleep(0.5)
    return output
