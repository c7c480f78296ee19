"""Checks of this machine before a job runs on it."""

from __future__ import annotations

import os
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kitctl.base.errors import UnsupportedError, UsageError
from kitctl.base.field_type import FieldType
from kitctl.cli.main import main
from kitctl.code.code_tree import NO_SOURCES
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.spec.job_spec import JobSpec
from kitctl.state.checks import Finding
from kitctl.targets import Submission
from kitctl.targets.local import local_checks
from kitctl.targets.local.folder import JobFolder
from kitjob.sections import Nccl, Policy, Scheduling, Snapshots

EVERY_OPTION = Path(__file__).parents[3] / "cases" / "every-option.yaml"


def submission(folder: Path, spec: JobSpec | None = None) -> Submission:
    return Submission(spec=spec or JobSpec(name="job"), sources=NO_SOURCES, folder=folder)


def found(folder: Path, spec: JobSpec | None = None) -> dict[str, Finding]:
    return {
        finding.check: finding
        for finding in local_checks.check_machine(submission(folder, spec), folder / "state" / "kitctl")
    }


def test_this_machine_could_run_the_default_workload(tmp_path: Path) -> None:
    findings = found(tmp_path)
    assert [name for name, finding in findings.items() if finding.verdict == "problem"] == []
    assert "module kittrain.workloads.digits" in findings["script"].what
    assert str(tmp_path) in findings["disk"].what
    assert not (tmp_path / "state").exists(), "nothing is created"


@pytest.mark.parametrize(
    ("spec", "check", "verdict", "words"),
    [
        (JobSpec(name="job", command=("absent.py",)), "script", "problem", "no script 'absent.py'"),
        (JobSpec(name="job", nodes=2, gpus_per_node=4096), "GPUs", "problem", "2 nodes with 4096 GPUs need 8192"),
        (JobSpec(name="job", shared_memory="1000Ti"), "shared memory", "warning", "a pod would have 1000Ti"),
        (JobSpec(name="job", nodes=4000), "processors", "warning", "4000 ranks share"),
    ],
)
def test_conflicts_are_reported(tmp_path: Path, spec: JobSpec, check: str, verdict: str, words: str) -> None:
    finding = found(tmp_path, spec)[check]
    assert finding.verdict == verdict
    assert words in finding.what
    assert finding.fix


def test_an_almost_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_checks, "LOW_DISK_BYTES", 1 << 62)
    assert found(tmp_path)["disk"].verdict == "warning"


def test_little_memory_is_told_to_a_job_whose_snapshots_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(name="job", snapshots=Snapshots(storage="memory", mirror="s3://bucket/run"))
    assert local_checks.remarks(submission(tmp_path, spec)) == []
    monkeypatch.setattr(local_checks, "LOW_DISK_BYTES", 1 << 62)
    (remark,) = local_checks.remarks(submission(tmp_path, spec))
    assert "left for all nodes, and each keeps up to four times the training state" in remark
    assert local_checks.remarks(submission(tmp_path)) == []


def test_no_port_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> socket.socket:
        raise PermissionError("not here")

    monkeypatch.setattr(socket, "create_server", refuses)
    finding = found(tmp_path)["loopback"]
    assert (finding.verdict, finding.what) == ("problem", "no port can be opened on 127.0.0.1: not here")


def test_submit_fails_without_required_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_checks.require_runnable(submission(tmp_path))
    with pytest.raises(UsageError, match="no script"):
        local_checks.require_runnable(submission(tmp_path, JobSpec(name="job", command=("absent.py",))))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else name)
    with pytest.raises(UnsupportedError, match="lacks torch"):
        local_checks.require_runnable(submission(tmp_path))


def test_a_shared_folder_within_one_that_is_shared_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ck is one folder already") as refusal:
        local_checks.require_runnable(submission(tmp_path, JobSpec(name="job", outputs="ck")))
    assert refusal.value.fix == "leave out --outputs, or send the folder: --workdir ."


def test_options_without_effect_on_this_target_are_named(tmp_path: Path) -> None:
    spec = specfile.build(JobRequest(file=EVERY_OPTION))
    remark, *others = local_checks.remarks(submission(tmp_path, spec))
    defaults = {"snapshots.accessMode", "security.profile", "security.reportStatus"}  # in that file, too
    named = [field for field in local_checks.IGNORED if field not in defaults]
    assert remark == f"the local target ignores what only a cluster has: {', '.join(named)}"
    assert [one.partition(":")[0] for one in others] == ["policy.survivors"]  # with memoryEverySteps
    assert local_checks.remarks(submission(tmp_path, JobSpec(name="job", nodes=3, env={"A": "b"}, resume=True))) == []
    other = JobSpec(name="job", secrets={"A": "b/c"}, scheduling=Scheduling(queue="q"))
    assert local_checks.remarks(submission(tmp_path, other)) == [
        "the local target ignores what only a cluster has: secrets, scheduling"
    ]


def test_each_field_is_either_used_or_ignored_on_purpose() -> None:
    """A new field must be added to one of the two."""
    heard = {
        "version",
        "name",
        "namespace",
        "nodes",
        "spares",
        "gpusPerNode",
        "procsPerNode",
        "command",
        "args",
        "env",
        "send",
    }
    heard |= {"workdir", "python", "outputs", "metrics.enabled", "metrics.port", "metrics.tensorboard"}
    heard |= {f"requirements.{key}" for key in ("file", "indexUrl", "extraIndexUrls", "findLinks", "noIndex")}
    heard |= {"resume", "fromScratch", "virtualRanks", "backend", "nccl", "security.rendezvousSecret"}
    heard |= {f"rendezvous.{key}" for key in ("joinTimeout", "lastCall")}
    heard |= {f"snapshots.{key}" for key in ("enabled", "claim", "everySteps", "every", "memoryEverySteps", "keep")}
    heard |= {"snapshots.keepEvery", "snapshots.keepBest", "snapshots.copy", "snapshots.modelFile", "snapshots.mirror"}
    heard |= {"snapshots.storage", "snapshots.mirrorTimeout"}
    heard |= {
        f"policy.{key}"
        for key in ("maxRestarts", "backoffLimit", "deadline", "gracePeriod", "hangTimeout", "lostAfter")
    }
    heard |= {"policy.onNonFinite", "policy.interruptionNotice", "policy.survivors", "policy.grow", "policy.growEvery"}
    named = heard | {*local_checks.IGNORED}
    fields = {
        name if name in named or not key else f"{name}.{key}"
        for name, shape in FieldType(JobSpec).fields.items()
        for key in shape.fields or [""]
    }
    assert fields == named


def test_a_submit_warns_about_ignored_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    started: list[JobFolder] = []
    monkeypatch.setattr("kitctl.targets.local.supervisor.spawn", started.append)
    words = [
        "submit",
        "--target",
        "local",
        "--image",
        "a/b",
        "--secret",
        "A=b/c",
        "--volume",
        "data:/data",
        "--queue",
        "q",
    ]
    assert main(words) == 0
    stderr = capsys.readouterr().err
    assert stderr.count("warning: ") == 1
    assert "image, secrets, volumes, scheduling" in stderr
    assert len(started) == 1


def test_what_a_job_asks_for_in_vain_is_told(tmp_path: Path) -> None:
    live = Policy(survivors="live")
    told = [
        local_checks.remarks(submission(tmp_path, JobSpec(name="job", policy=live, snapshots=snapshots)))
        for snapshots in (Snapshots(memory_every_steps=5), Snapshots())
    ]
    assert [len(lines) for lines in told] == [1, 0]
    assert told[0][0].startswith("policy.survivors: live has no effect")


SLIP = "import torch\nprint(1\nloss = 2\n"


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (JobSpec(name="job", command=("slip.py",)), "command: slip.py, line 2: '(' was never closed: print(1"),
        (JobSpec(name="job", nccl=Nccl(interface="ib0")), "nccl.interface: this machine has no interface 'ib0'"),
        (JobSpec(name="job", nccl=Nccl(interface="=l")), "nccl.interface: this machine has no interface '=l'"),
        (JobSpec(name="job", nodes=2, gpus_per_node=4096), "2 nodes with 4096 GPUs need 8192, and this machine has "),
    ],
)
def test_what_cannot_work_here_is_refused_unless_checks_are_skipped(
    spec: JobSpec, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_checks, "OTHER_GPUS", ())
    (tmp_path / "slip.py").write_text(SLIP, encoding="utf-8")
    asked = submission(tmp_path, spec)
    with pytest.raises(UsageError, match=re.escape(error)) as raised:
        local_checks.require_runnable(asked)
    assert raised.value.fix
    local_checks.require_runnable(replace(asked, checks=False))


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(name="job", command=("fine.py",)),
        JobSpec(name="job", command=("run.sh",)),
        JobSpec(name="job", nccl=Nccl(interface="lo")),
        JobSpec(name="job", nccl=Nccl(interface="ib,l")),
        JobSpec(name="job", nccl=Nccl(interface="^docker")),
        JobSpec(name="job", gpus_per_node=4096, backend="gloo"),
        JobSpec(name="job", command=("slip.py",), python=sys.executable),  # perhaps of another version
    ],
)
def test_what_may_work_here_is_not_refused(spec: JobSpec, tmp_path: Path) -> None:
    for name, text in (("fine.py", 'print("\\d")\n'), ("run.sh", "if ["), ("slip.py", SLIP)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    local_checks.require_runnable(submission(tmp_path, spec))
    warned = [one for one in local_checks.remarks(submission(tmp_path, spec)) if "slip.py, line 2" in one]
    assert bool(warned) == bool(spec.python)


def test_a_few_ranks_for_each_core_are_no_reason_for_a_warning(tmp_path: Path) -> None:
    cores = os.cpu_count() or 1
    few, many = JobSpec(name="job", nodes=4 * cores), JobSpec(name="job", nodes=9 * cores)
    assert local_checks.remarks(submission(tmp_path, few)) == []
    (warning,) = local_checks.remarks(submission(tmp_path, many))
    assert warning.startswith(f"{9 * cores} ranks share {cores} cores")
    assert local_checks.remarks(replace(submission(tmp_path, many), checks=False)) == []
