"""A trace of a rank that has no torch, or is not there: an error in a line, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.agent.inside.test_stacks import SLEEPS
from tests.trainer.ranks import StartRank

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are found in /proc")


def profile(rank: int) -> str:
    """What the tool says when it fails."""
    words = ["--rank", str(rank), "--steps", "2", "--timeout", "1", "--agent", str(os.getpid())]
    command = [sys.executable, "-P", "-m", "kittrain.agent.inside.profile", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_a_script_without_torch_is_told_and_no_request_stays(start_rank: StartRank, tmp_path: Path) -> None:
    start_rank(7, SLEEPS)
    assert profile(7) == "the profiler failed: RuntimeError: the script has not imported torch\n"
    assert not [path for path in tmp_path.rglob("*") if "profile" in path.name or "trace" in path.name]


def test_a_rank_that_is_not_there_is_named(start_rank: StartRank) -> None:
    start_rank(7, SLEEPS)
    assert profile(3) == "rank 3 does not run here\n"


def test_a_rank_that_is_stopped_is_told_after_the_time(start_rank: StartRank, tmp_path: Path) -> None:
    stopped = start_rank(7, SLEEPS)
    os.kill(stopped, signal.SIGSTOP)
    os.waitpid(stopped, os.WUNTRACED)
    told = "no such number of calls of an optimizer within 1 s: the rank is stopped, by SIGSTOP or a debugger\n"
    assert profile(7) == told
    assert not [path for path in tmp_path.rglob("*") if "profile" in path.name or "trace" in path.name]
