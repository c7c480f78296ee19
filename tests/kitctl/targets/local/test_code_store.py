"""Files that are sent with local jobs are kept once for all jobs, and only their user can read them."""

from __future__ import annotations

from pathlib import Path

from kitctl.code.workdir.collecting import collect
from kitctl.targets.local import code_store


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


def test_a_damaged_file_of_the_pool_is_replaced(tmp_path: Path) -> None:
    """A power cut leaves a file of the right size with zeros; each job with that file would fail for ever."""
    project, state = tmp_path / "project", tmp_path / "state"
    project.mkdir()
    (project / "train.py").write_text("X = 1\n")
    for number in (1, 2):
        job = state / "jobs" / str(number)
        job.mkdir(parents=True)
        code_store.add([collect(project, ())], job, state)
        [kept] = (job / "code" / "blobs").iterdir()
        assert kept.read_text() == "X = 1\n"
        [pooled] = (state / code_store.POOL).iterdir()
        assert pooled.stat().st_ino == kept.stat().st_ino
        pooled.unlink()
        pooled.write_bytes(bytes(6))
