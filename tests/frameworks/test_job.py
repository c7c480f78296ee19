"""A Hugging Face Trainer as a job of three nodes: the status shows its progress, a restart drains and resumes it."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.frameworks.jobs import kitctl, until
from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import SCRIPTS, log, run, weights

pytestmark = MARKS


def test_a_job_is_shown_drained_and_resumed(tmp_path: Path) -> None:
    job = "hf"
    script = ("--", str(SCRIPTS / "hf.py"), "--batch", "2", "--pause", "0.3", "--out", str(tmp_path / "weights.pt"))
    kitctl("submit", "--nodes", "3", "--name", job, *script)
    try:
        status = until("/16", "status", job)
        assert "epoch 1/2" in status
        kitctl("restart", job)
        kitctl("wait", job, "--timeout", "600s")
        logs = kitctl("logs", job)
        assert "stopping at step" in logs
        assert "resuming after step" in logs
        status = kitctl("status", job)
        assert "step 16/16" in status
        assert "eval_loss" in status
    finally:
        kitctl("delete", job)
    whole = tmp_path / "whole"
    out = str(whole / "weights.pt")
    assert run("hf.py", whole, "--batch", "2", "--out", out, size=3) == [0, 0, 0], log(whole)
    expected, resumed = weights(whole / "weights.pt"), weights(tmp_path / "weights.pt")
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
