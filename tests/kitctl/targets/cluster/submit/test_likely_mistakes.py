"""Warnings of what only pods could prove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kitctl.code.code_tree import Sources
from kitctl.code.sources import sources
from kitctl.spec.job_spec import JobSpec
from kitctl.targets import Submission, cluster
from kitctl.targets.cluster.submit import likely_mistakes
from kitjob.sections import Resources, Snapshots

SLIP = "print(1\n"


def warned(folder: Path, *, files: dict[str, str] | None = None, **spec: Any) -> list[str]:
    job = JobSpec(name="job", **spec)
    sent = Sources(files=files) if files else sources(job, folder) if job.workdir else Sources()
    return [*likely_mistakes.warnings(Submission(spec=job, sources=sent, folder=folder))]


@pytest.mark.parametrize("workdir", ["", "."])
def test_a_script_with_a_slip_is_warned_of(workdir: str, tmp_path: Path) -> None:
    (tmp_path / "slip.py").write_text(SLIP, encoding="utf-8")
    files = None if workdir else {"slip.py": SLIP}
    (warning,) = warned(tmp_path, files=files, command=("slip.py",), workdir=workdir)
    assert warning.startswith("slip.py, line 1: '(' was never closed: print(1; Python 3.")


def test_a_script_of_the_image_is_not_known(tmp_path: Path) -> None:
    assert warned(tmp_path, command=("/app/slip.py",)) == []


@pytest.mark.parametrize(("limit", "warns"), [("1", True), ("3500m", True), ("4", False), ("8", False)])
def test_more_ranks_than_a_pods_cores_are_warned_of(limit: str, *, warns: bool, tmp_path: Path) -> None:
    found = warned(tmp_path, procs_per_node=4, resources=Resources(limits={"cpu": limit}))
    told = f"4 ranks of a pod share its limit of {limit} CPU; raise resources.limits.cpu, or lower --procs-per-node"
    assert found == ([told] if warns else [])


def test_snapshots_that_go_with_the_pods_are_warned_of(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, nodes=2, snapshots=Snapshots(storage="perNode"))
    assert warning.startswith("nothing is left of this job once all of its pods have ended (its end, cancel, ")
    assert warning.endswith("; set snapshots.mirror")
    for kept in (Snapshots(storage="perNode", mirror="s3://bucket/run"), Snapshots(), Snapshots(enabled=False)):
        assert warned(tmp_path, nodes=2, snapshots=kept) == []


def test_no_checks_skips_them(tmp_path: Path) -> None:
    job = JobSpec(name="job", command=("slip.py",))
    asked = Submission(spec=job, sources=Sources(files={"slip.py": SLIP}), folder=tmp_path)
    assert len([*cluster.remarks(asked)]) == 1
    assert [*cluster.remarks(Submission(spec=job, sources=asked.sources, folder=tmp_path, checks=False))] == []
