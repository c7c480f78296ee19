"""kitctl and an image's trainer of different versions: each reads what the other writes, or refuses it by name.

The other version is a copy of the contract's package without a few of today's fields, in a process of its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kitjob
from kitctl.targets.cluster.read import reports
from kitjob import document, typed
from kitjob.job_keys import JobKeys
from kitjob.report import Progress, Report
from kitjob.run import RunFacts
from kitjob.sections import Policy, Snapshots
from kittrain.job.env import rank_env

# What the older version lacks: a setting, what the target tells, and a part of the report.
LACKING = {"sections.py": "keep_best", "run.py": "log_dir", "report.py": "metrics"}
READ = """
import os
from kittrain.job.env import node_env, rank_env
node, rank = node_env(os.environ), rank_env(os.environ)
assert not hasattr(rank.job.snapshots, "keep_best"), "this is the older version"
print(rank.job.snapshots.every_steps, node.grace_seconds)
"""
WRITE = """
from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.run import RunFacts
from kitjob.sections import Snapshots
print(document.write(JobKeys(snapshots=Snapshots(every_steps=7)), RunFacts()), end="")
"""
READ_REPORT = """
import sys
from kitjob import typed
from kitjob.report import Report
report = typed.load(Report, sys.stdin.buffer.read())
assert not hasattr(report.progress, "metrics"), "this is the older version"
sys.stdout.buffer.write(typed.dump(report))
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the older version."""
    folder = tmp_path_factory.mktemp("older")
    ours = Path(kitjob.__file__).parent
    shutil.copytree(ours, folder / "kitjob", ignore=shutil.ignore_patterns("__pycache__"))
    for name, field in LACKING.items():
        file = folder / "kitjob" / name
        text, found = re.subn(rf'^    {field}: .*\n    """(?s:.*?)"""\n', "", file.read_text(), flags=re.MULTILINE)
        assert found == 1, f"{name} has one field {field}"
        file.write_text(text)
    return folder


def run(older: Path, program: str, *, given: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program with the older version."""
    command = [sys.executable, "-P", "-c", program]
    env = {"PYTHONPATH": str(older), **environ}
    return subprocess.run(command, check=False, env=env, input=given, capture_output=True)


def test_an_older_image_refuses_by_name_only_what_it_would_have_to_do(older: Path) -> None:
    asked = JobKeys(snapshots=Snapshots(every_steps=7, keep_best="max:accuracy"))
    told = RunFacts(kitctl="9.0.0", log_dir="/snapshots/logs")
    done = run(older, READ, KIT_SPEC=document.write(asked, told))
    assert done.returncode != 0
    last = done.stderr.decode().splitlines()[-1]
    assert (
        "KIT_SPEC: snapshots.keepBest, run.logDir: not known: the image's kittrain is older than kitctl 9.0.0" in last
    )
    assert "name one of kitctl's version with --image" in last


def test_an_older_image_runs_a_job_whose_newer_settings_have_their_defaults(older: Path) -> None:
    job = JobKeys(snapshots=Snapshots(every_steps=7), policy=Policy(grace_period="90s"))
    done = run(older, READ, KIT_SPEC=document.write(job, RunFacts()))
    assert (done.stdout, done.stderr) == (b"7 90\n", b"")


def test_a_newer_image_reads_what_an_older_kitctl_writes(older: Path) -> None:
    written = run(older, WRITE).stdout.decode()
    rank = rank_env({"KIT_SPEC": written})
    assert (rank.job.snapshots.every_steps, rank.job.snapshots.keep_best) == (7, "")


def test_reports_of_a_newer_and_of_an_older_agent_are_read(older: Path) -> None:
    newer = typed.dump(Report(round=2, progress=Progress(step=5, loss=0.5, metrics={"accuracy": 0.9})))
    done = run(older, READ_REPORT, given=newer)  # as an older kitctl reads it, and an older agent writes it
    found = reports.report({"data": {"report": done.stdout.decode()}})
    assert found == Report(round=2, progress=Progress(step=5, loss=0.5)), done.stderr
