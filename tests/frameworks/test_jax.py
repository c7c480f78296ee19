"""The real JAX: its processes find each other from the environment that a rank has, and again after each kill."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks.jobs import kitctl
from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import SCRIPTS, log, run

pytestmark = MARKS


def test_processes_find_each_other_without_arguments(tmp_path: Path) -> None:
    assert run("jax_sum.py", tmp_path) == [0, 0], log(tmp_path)
    assert "process 0 of 2: sum 3" in log(tmp_path)
    assert "process 1 of 2: sum 3" in log(tmp_path, 1)


def test_a_job_that_is_killed_at_its_first_middle_and_last_steps_ends_the_same(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed.npy"
    assert run("jax_train.py", whole, "--out", str(whole / "weights.npy"), size=3) == [0, 0, 0], log(whole)
    steps = ("0", "5", "6", "12")  # 6 and 12 follow a checkpoint
    script = (str(SCRIPTS / "jax_train.py"), "--out", str(killed), "--kill-at", *steps)
    kitctl("submit", "--nodes", "3", "--name", "jax", "--max-restarts", "8", "--", *script)
    try:
        kitctl("wait", "jax", "--timeout", "600s")
        logs = kitctl("logs", "jax")
    finally:
        kitctl("delete", "jax")
    assert all((tmp_path / f"killed.killed-{step}").exists() for step in steps)
    assert [logs.count(f"process 2 of 3 begins after step {step}") for step in (0, 3, 6, 12)] == [2, 1, 1, 1]
    assert killed.read_bytes() == (whole / "weights.npy").read_bytes()
