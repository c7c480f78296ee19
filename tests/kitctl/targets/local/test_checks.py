"""What is looked at on this machine before a job runs here."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kitctl.doctor import Finding
from kitctl.errors import UnsupportedError, UsageError
from kitctl.spec import JobSpec
from kitctl.targets import Submission
from kitctl.targets.local import checks


def submission(folder: Path, spec: JobSpec | None = None) -> Submission:
    return Submission(spec=spec or JobSpec(name="job"), sources={}, folder=folder)


def found(folder: Path, spec: JobSpec | None = None) -> dict[str, Finding]:
    return {finding.check: finding for finding in checks.examine(submission(folder, spec), folder / "state" / "kitctl")}


def test_this_machine_could_run_the_default_workload(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert [name for name, finding in told.items() if finding.verdict == "problem"] == []
    assert "module trainer.workloads.digits" in told["script"].what
    assert str(tmp_path) in told["disk"].what
    assert not (tmp_path / "state").exists(), "nothing is made"


@pytest.mark.parametrize(
    ("spec", "check", "verdict", "words"),
    [
        (JobSpec(name="job", command=("absent.py",)), "script", "problem", "no script 'absent.py'"),
        (JobSpec(name="job", nodes=2, gpus_per_node=4096), "GPUs", "problem", "2 nodes of 4096 are 8192"),
        (JobSpec(name="job", shared_memory="1000Ti"), "shared memory", "warning", "a pod would have 1000Ti"),
        (JobSpec(name="job", nodes=4000), "processors", "warning", "4000 ranks share"),
    ],
)
def test_what_stands_in_the_way_is_told(tmp_path: Path, spec: JobSpec, check: str, verdict: str, words: str) -> None:
    finding = found(tmp_path, spec)[check]
    assert finding.verdict == verdict
    assert words in finding.what
    assert finding.fix


def test_a_disk_that_is_almost_full_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LITTLE", 1 << 62)
    assert found(tmp_path)["disk"].verdict == "warning"


def test_no_port_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> socket.socket:
        raise PermissionError("not here")

    monkeypatch.setattr(socket, "create_server", refuses)
    finding = found(tmp_path)["loopback"]
    assert (finding.verdict, finding.what) == ("problem", "no port can be opened on 127.0.0.1: not here")


def test_submit_insists_on_what_a_job_cannot_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks.insist(submission(tmp_path))
    with pytest.raises(UsageError, match="no script"):
        checks.insist(submission(tmp_path, JobSpec(name="job", command=("absent.py",))))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else name)
    with pytest.raises(UnsupportedError, match="lacks torch"):
        checks.insist(submission(tmp_path))
