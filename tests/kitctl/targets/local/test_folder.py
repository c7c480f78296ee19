"""A job's folder: files are complete or absent, and locks show which processes live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitctl.base.errors import TargetError
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.read import reports
from kitctl.targets.local.folder import JobFolder, create, read
from kitctl.targets.local.locks import acquire_lock, is_locked
from kitctl.targets.local.records import Desired, Started, SubmittedJob
from kitjob.names import PREPARING_KEY
from kitjob.run import RunFacts
from kittrain.agent.setup.preparation import preparing
from kittrain.job.env import NodeEnv

HOLDER = """
import sys, time
from pathlib import Path
from kitctl.targets.local.locks import acquire_lock
with acquire_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def job(name: str = "job") -> SubmittedJob:
    spec = JobSpec(name=name, namespace="ns", nodes="2:4", env={"LR": "1e-3"})
    return SubmittedJob(spec=spec, run="r", created=1.0, folder="/", python=sys.executable, version="0")


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    create(tmp_path / "ns" / "job", job(), Desired(nodes=4))
    folder = JobFolder(tmp_path / "ns" / "job")
    assert folder.job == job()
    assert folder.desired == Desired(nodes=4)
    assert folder.result is None
    assert (folder.path.stat().st_mode & 0o077) == 0, "env may contain secrets"


def test_a_second_job_of_the_same_name_does_not_change_the_first(tmp_path: Path) -> None:
    create(tmp_path / "job", job("first"), Desired(nodes=2))
    with pytest.raises(FileExistsError):
        create(tmp_path / "job", job("second"), Desired(nodes=3))
    assert JobFolder(tmp_path / "job").job.spec.name == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["job"], "nothing is left behind"


def test_what_root_writes_for_a_user_is_the_users_file(tmp_path: Path) -> None:
    folder = create(tmp_path / "job", job(), Desired(nodes=2))
    if os.geteuid() == 0:  # else it is this user's folder, as ever
        os.chown(folder.path, 1001, 1001)
    folder.write(Desired(nodes=3))
    found = (folder.path / "desired.json").stat()
    assert (found.st_uid, found.st_gid) == (folder.path.stat().st_uid, folder.path.stat().st_gid)


def test_who_is_not_root_gives_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    folder = create(tmp_path / "job", job(), Desired(nodes=2))
    monkeypatch.setattr(os, "geteuid", lambda: folder.path.stat().st_uid + 1)  # who may write there, as to /tmp
    monkeypatch.setattr(os, "chown", refused)
    folder.write(Desired(nodes=3))
    assert folder.desired.nodes == 3


def test_where_no_folder_can_be_made_the_variable_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("as good as a home folder that is read-only")
    with pytest.raises(TargetError, match=r"no job can be kept in .*/home/.local: Not a directory: ") as refused:
        create(tmp_path / "home" / ".local" / "job", job(), Desired(nodes=2))
    assert refused.value.fix == "set XDG_STATE_HOME to a folder that you can write"


def test_what_is_left_of_a_deleted_folder_is_no_job(tmp_path: Path) -> None:
    (tmp_path / "job" / "ranks").mkdir(parents=True)
    (tmp_path / "job" / "report.json").write_text("{}")
    folder = create(tmp_path / "job", job(), Desired(nodes=1))
    assert folder.job == job()
    assert not folder.report_path.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_what_a_node_does_before_it_joins_is_there_for_as_long_as_it_takes(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.node(1).path.mkdir(parents=True)
    node = NodeEnv(run=RunFacts(report=f"file:{folder.report_path}"), node_index=1, pod="job-1")
    with preparing("installing requirements", node, pytest.fail):
        found = folder.preparing[1]
        on_a_cluster = reports.preparing({"data": {f"{PREPARING_KEY}1": (tmp_path / "preparing-1.json").read_text()}})
    assert (found.pod, found.what) == ("job-1", "installing requirements")
    assert 0 < found.since <= time.time()
    assert on_a_cluster == {1: found}
    assert folder.preparing == {}


def test_a_half_written_file_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "1.start.json"
    path.write_text('{"time": 1.0, "pi')
    assert read(path, Started) is None


def test_a_lock_is_released_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert is_locked(path)
    with acquire_lock(path, timeout=0.0) as second:
        assert second is None
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert not is_locked(path)
    with acquire_lock(path, timeout=0.0) as third:
        assert third is not None


def test_checking_a_lock_does_not_take_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        assert not is_locked(path)
        with acquire_lock(path) as lock:
            assert lock is not None
            assert is_locked(path)
