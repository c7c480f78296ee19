"""The platform chart on a cluster: its roles, its claim and its queues work, and jobs outlive a release of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kitctl.base import names
from tests.cluster.commands import job, kitctl, status, until_status
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUEUE_LABEL, SHARED, TRAINER_IMAGE
from tests.cluster.kinds.test_kinds import train_job
from tests.cluster.kubectl import Object, apply, get, kubectl, until
from tests.cluster.release import CLAIM, FORBIDDEN, Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

# A script that goes on once the test makes a file in the job's folder on the claim.
WAITS: Final = """
import os, pathlib, time
while not pathlib.Path(os.environ["KIT_SNAPSHOT_DIR"], "go").exists():
    time.sleep(0.2)
print("went on")
"""


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The script, in the working folder."""
    (tmp_path / "waits.py").write_text(WAITS)
    monkeypatch.chdir(tmp_path)
    return "waits.py"


def goes_on(namespace: str, name: str) -> None:
    """Let the script of a job on the shared claim end."""
    (folder,) = SHARED.glob(f"pvc-*_{namespace}_{CLAIM}")
    (folder / name / "go").touch()


@pytest.mark.wide
def test_a_users_job_outlives_the_release_that_gave_the_rights(namespace: str, release: Release, waits: str) -> None:
    user, second = release.person("user"), release.person("second")
    release.team = {"sharedClaim": True, "roles": {"user": {"serviceAccounts": [release.account("user")]}}}
    assert f"kitctl submit --claim {CLAIM} -n {namespace}" in release.apply(sharedClaim={"size": "1Gi"})
    assert "you may not" not in user("submit", *job("run", namespace, "--claim", CLAIM), "--", waits)
    until_status("run", namespace, lambda state: state["worldSize"])
    assert "Running" in user("status", "run")
    for words in (("list", "-A"), ("list", "-n", "default"), ("delete", "run", "-n", "default")):
        output = user(*words, exit_code=1)
        assert FORBIDDEN in output
        assert "fix: ask for this right, or use a namespace where you have it" in output

    assert FORBIDDEN in second("list", exit_code=1)
    release.team["roles"]["user"]["serviceAccounts"].append(release.account("second"))
    release.apply(sharedClaim={"size": "1Gi"})
    assert "run" in second("list")

    release.uninstall()
    assert FORBIDDEN in user("list", exit_code=1)
    assert status("run", namespace)["phase"] == "Running"
    goes_on(namespace, "run")
    until_status("run", namespace, lambda state: state["phase"] == "Succeeded")
    assert "went on" in kitctl("logs", "run", "-n", namespace)
    assert get(namespace, "pvc", CLAIM)["status"]["phase"] == "Bound"


@pytest.mark.controllers
@pytest.mark.long
def test_jobs_in_a_queue_of_the_release_go_on_and_wait(namespace: str, release: Release, waits: str) -> None:
    kubectl("label", "namespace", namespace, f"{KUEUE_LABEL}=true")
    release.team = {"sharedClaim": True, "queue": namespace}
    release.apply(queues=queue(namespace, pods=1), sharedClaim={"size": "1Gi"})
    for name in ("first", "second"):
        kitctl("submit", *job(name, namespace, "--claim", CLAIM, "--queue", namespace), "--", waits)
        until_status("first", namespace, lambda state: state["worldSize"])
    assert status("second", namespace)["queue"]["state"] == "Waiting"
    release.apply(queues=queue(namespace, pods=1, cpu="50"), sharedClaim={"size": "1Gi"})
    release.uninstall()
    goes_on(namespace, "first")
    until_status("first", namespace, lambda state: state["phase"] == "Succeeded")
    assert status("second", namespace)["phase"] == "Pending"
    until(lambda: not kubectl("get", "clusterqueue,resourceflavor", "-o", "name", "--ignore-not-found", namespace))
    release.apply(queues=queue(namespace, pods=1), sharedClaim={"size": "1Gi"})
    until_status("second", namespace, lambda state: state["worldSize"])
    goes_on(namespace, "second")
    until_status("second", namespace, lambda state: state["phase"] == "Succeeded")


def queue(name: str, *, pods: int, cpu: str = "100") -> Object:
    """Values for a ClusterQueue with room for so many nodes."""
    quotas = {name: {"cpu": cpu, "memory": "100Gi", "pods": str(pods)}}
    return {"flavors": {name: {}}, "clusterQueues": {name: {"quotas": quotas}}}


@pytest.mark.controllers
@pytest.mark.long
def test_a_train_job_goes_on_without_the_release_of_its_runtime(namespace: str, release: Release) -> None:
    release.apply(trainingRuntimes={"enabled": True}, image=pushed(TRAINER_IMAGE))
    trainer = {"numNodes": 1, "args": ["-m", "kittrain.workloads.toy", "50", "--samples", "64", "--step-time", "0.2"]}
    plain = train_job("plain", {"runtimeRef": {"name": namespace}, "trainer": trainer})
    plain["metadata"]["labels"] = {names.LABEL_NAME: names.APP_NAME}  # as the runtime is not one that kitctl knows
    apply(namespace, plain)
    until_status("plain", namespace, lambda state: state["progress"]["step"])
    release.apply(trainingRuntimes={"enabled": True, "sharedMemory": "1Gi"}, image=pushed(TRAINER_IMAGE))
    release.uninstall()
    state = status("plain", namespace)
    assert (state["phase"], state["restarts"]) == ("Running", 0)
    until_status("plain", namespace, lambda state: state["phase"] == "Succeeded")
    kubectl("delete", "trainjob.trainer.kubeflow.org", "-n", namespace, "plain")
    until(lambda: not kubectl("get", "clustertrainingruntime", "-o", "name", "--ignore-not-found", namespace))


@pytest.mark.long
def test_a_namespace_that_the_release_made_outlives_it(release: Release) -> None:
    name = f"{release.namespace}-made"
    made = {"create": True, "podSecurity": "baseline", "labels": {"team": "vision"}, "sharedClaim": True}
    try:
        release.apply(namespaces={name: made}, sharedClaim={"size": "1Gi"})
        release.uninstall()
        assert get("", "namespace", name)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
        assert get(name, "pvc", CLAIM)["spec"]["resources"]["requests"] == {"storage": "1Gi"}
        release.apply(namespaces={name: made}, sharedClaim={"size": "1Gi"})
    finally:
        kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
