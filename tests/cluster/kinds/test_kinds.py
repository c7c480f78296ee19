"""Kinds with their own controller: which lost pods they survive, and a TrainJob written by hand."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl.kinds.train_job import PLAIN_CLAIM, PLAIN_RUNTIME
from tests.cluster.commands import NOWHERE, job, kitctl, status, until_status
from tests.cluster.faults.test_faults import delete_pod
from tests.cluster.jobs import KINDS, Run
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import SHARED, TRAINER_IMAGE
from tests.cluster.kubectl import Object, apply, get, kubectl, until
from tests.cluster.platform.test_permissions import FEW_RIGHTS, kit_of_user
from tests.cluster.toy import ORDER, all_recover, assert_complete_and_exact, has_trained, submit_toy
from tests.exact import assert_each_sample_counts_once

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.timeout(1200)]

TOY: Final = ("-m", "kittrain.workloads.toy", "3", "1", "--record", "/snapshots/record")
LONG: Final = 20  # epochs: the lost node comes back before the others are done
DATA: Final = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch), "--step-time", "0.2")


@pytest.mark.parametrize("kind", [pytest.param("TrainJob", marks=pytest.mark.long), "JobSet"])
def test_an_elastic_job_continues_without_its_node_0_which_then_rejoins(namespace: str, kind: str) -> None:
    run = submit_toy(namespace, kind, "--nodes", "2:3", epochs=LONG)
    until_status(run.name, namespace, lambda state: state["worldSize"] == 3)
    until(partial(has_trained, run, steps=5))
    with all_recover(run):
        delete_pod(run, 0)
    until_status(run.name, namespace, lambda state: state["worldSize"] == 3)
    assert_complete_and_exact(run, epochs=LONG)
    page = kitctl("status", run.name, "-n", namespace)
    assert "Succeeded" in page
    assert f"({kind})" in page


@pytest.mark.parametrize(("group", "kind"), [("trainer.kubeflow.org", "TrainJob"), ("jobset.x-k8s.io", "JobSet")])
def test_without_the_right_to_create_jobs_another_kind_is_chosen(
    namespace: str, group: str, kind: str, tmp_path: Path
) -> None:
    rights = [{"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}, *FEW_RIGHTS[1:]]
    limited = kit_of_user(namespace, rights, tmp_path)
    output = limited("submit", *job("run", namespace, *NOWHERE))
    assert f"kind: {kind}, since you may not create Jobs in namespace {namespace!r}" in output
    assert status("run", namespace)["jobKind"] == kind
    assert "run" in limited("list", "-n", namespace)
    limited("delete", "run", "-n", namespace)


@pytest.fixture
def plain(namespace: str) -> Run:
    """A TrainJob as people write it, without any other object."""
    run = Run(namespace=namespace, name="plain", kind="TrainJob")
    trainer = {"image": pushed(TRAINER_IMAGE), "numNodes": 2, "args": [*TOY, *DATA]}
    apply(namespace, train_job(run.name, {"runtimeRef": {"name": PLAIN_RUNTIME}, "trainer": trainer}))
    return run


def train_job(name: str, spec: Object) -> Object:
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def test_a_train_job_by_hand_recovers_and_shows_its_progress(namespace: str, plain: Run) -> None:
    until(lambda: trainer_status(plain).get("metrics"), seconds=300)
    state = until_status("plain", namespace, lambda state: state["progress"]["step"])
    assert (state["worldSize"], state["readyNodes"], state["progress"]["totalSteps"]) == (2, 2, 48)
    assert "plain" in kitctl("list", "-n", namespace)
    (pod,) = pods_of(plain, 0)
    kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=false")
    resource, condition, _ = KINDS["TrainJob"]
    kubectl("wait", "-n", namespace, f"{resource}/plain", f"--for=condition={condition}", "--timeout=400s")
    folder = folder_of(plain)
    assert_each_sample_counts_once(folder, folder / "record", ORDER, epochs=3)
    assert trainer_status(plain)["progressPercentage"] == 100
    lines = kitctl("logs", "plain", "-n", namespace)
    assert "resuming after step" in lines
    assert "this run has no secret: anyone who can reach port 29400 of node 0" in lines, "Trainer makes none"
    assert status("plain", namespace)["phase"] == "Succeeded"
    kubectl("delete", "-n", namespace, f"{resource}/plain")
    until(lambda: not get(namespace, "pvc")["items"])  # else JobSet would start no other job of that name


def trainer_status(run: Run) -> dict[str, Any]:
    """``status.trainerStatus``."""
    found = get(run.namespace, KINDS["TrainJob"][0], run.name).get("status", {}).get("trainerStatus", {})
    assert isinstance(found, dict), json.dumps(found)
    return found


def pods_of(run: Run, index: int) -> list[Object]:
    """The pods of a node; a TrainJob by hand has no labels of kitctl's."""
    selector = f"jobset.sigs.k8s.io/jobset-name={run.name},{KINDS[run.kind][2]}={index}"
    found: list[Object] = get(run.namespace, "pods", "-l", selector)["items"]
    return found


def folder_of(run: Run) -> Any:
    """The folder of the claim that its runtime gave it, on this machine."""
    (folder,) = SHARED.glob(f"pvc-*_{run.namespace}_{PLAIN_CLAIM}-{run.name}")
    return folder
