"""Files that are sent with local jobs are kept once for all jobs, and only their user can read them."""

from __future__ import annotations

from pathlib import Path

from kitctl.targets.local import code_store
from kitctl.workdir.collecting import collect


def test_nobody_else_can_read_the_pool(tmp_path: Path) -> None:
    project, state, job = tmp_path / "project", tmp_path / "state", tmp_path / "state" / "jobs" / "one"
    project.mkdir()
    (project / "train.py").write_text("KEY = 'private'\n")
    (project / "train.py").chmod(0o600)
    pool = state / code_store.POOL
    pool.mkdir(parents=True, mode=0o755)
    job.mkdir(parents=True, mode=0o700)
    code_store.add([collect(project, ())], job, state)
    assert len([*pool.iterdir()]) == 1
    assert pool.stat().st_mode & 0o777 == 0o700
