"""Outputs in a pod's working folder end with the pod, unless they are kept on the claim: the user is told which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kitctl.render import objects
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.read import job_facts
from kitjob.sections import Snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kitctl.targets.cluster.clients import Kit

LOST = "/workspace of each pod, gone with the pod"
KEPT = "claim run-snapshots, outputs/<run>"


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "train.py").write_text("")
    return ("--name", "run", "--workdir", str(tmp_path))


def test_outputs_that_end_with_the_pods_are_named(kit: Kit, words: tuple[str, ...]) -> None:
    assert f"outputs of its nodes: {LOST}; --outputs DIR has" in kit("submit", *words, "--", "train.py")
    assert LOST in kit("status", "run")
    assert f"its outputs are deleted: {LOST}" in kit("submit", *words, "--replace", "--resume", "--", "train.py")
    assert f"run: its outputs are deleted: {LOST}" in kit("delete", "run")


def test_outputs_on_the_claim_are_named_and_stay(kit: Kit, words: tuple[str, ...]) -> None:
    output = kit("submit", *words, "--outputs", "ck", "--", "train.py")
    assert f"outputs: ck is one folder for all nodes and stays: {KEPT}\n" in output
    assert KEPT in kit("status", "run")
    assert f"its outputs are on {KEPT}" in kit("delete", "run", "--outputs", "-y", exit_code=2)
    assert f"run: its outputs stay on {KEPT}" in kit("delete", "run")


def test_a_script_that_is_sent_alone_is_told_that_its_outputs_end_with_the_pods(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    output = kit("submit", "--name", "run", "--", "train.py")
    assert "is gone with its pod; --outputs DIR" in output
    assert "outputs" not in kit("submit", "--name", "own-workload")


def test_on_a_claim_of_several_jobs_the_jobs_folder_is_named() -> None:
    spec = JobSpec(name="run", outputs="ck", snapshots=Snapshots(claim="team"))
    job = objects.manifests(spec)[-1]
    assert job_facts.outputs(job, "uid") == "claim team, run/outputs/uid"
