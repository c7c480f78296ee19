"""A Hugging Face Trainer as a job of two nodes: its status shows its progress, and a restart drains and resumes it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import torch

from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import OFFLINE, SCRIPTS, log, run, weights
from tools.test_frameworks import INTERPRETER

pytestmark = MARKS


def kitctl(*words: str) -> str:
    command = [str(INTERPRETER), "-m", "kitctl", *words]
    done = subprocess.run(command, check=False, env={**os.environ, **OFFLINE}, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def until(text: str, *words: str) -> str:
    deadline = time.monotonic() + 300
    while text not in (output := kitctl(*words)):
        assert time.monotonic() < deadline, output
        time.sleep(0.5)
    return output


def test_a_job_is_shown_drained_and_resumed(tmp_path: Path) -> None:
    job, target = "hf", ("--target", "local")
    script = ("--", str(SCRIPTS / "hf.py"), "--pause", "0.3", "--out", str(tmp_path / "weights.pt"))
    kitctl("submit", *target, "--nodes", "2", "--name", job, *script)
    try:
        status = until("/16", "status", job, *target)
        assert "epoch 1/2" in status
        kitctl("restart", job, *target)
        kitctl("wait", job, *target, "--timeout", "600s")
        logs = kitctl("logs", job, *target)
        assert "stopping at step" in logs
        assert "resuming after step" in logs
        status = kitctl("status", job, *target)
        assert "step 16/16" in status
        assert "eval_loss" in status
    finally:
        kitctl("delete", job, *target)
    whole = tmp_path / "whole"
    assert run("hf.py", whole, "--out", str(whole / "weights.pt")) == [0, 0], log(whole)
    expected, resumed = weights(whole / "weights.pt"), weights(tmp_path / "weights.pt")
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
