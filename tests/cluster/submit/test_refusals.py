"""Jobs that cannot run are refused before anything is created, or report why they wait."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitctl.targets.cluster.connection import resources
from tests.cluster.commands import IDLE, job, kitctl, status, until_status
from tests.cluster.kind.settings import KUBECONFIG, REGISTRY
from tests.cluster.kubectl import apply, get, kubectl, until
from tests.cluster.submit.test_submit import left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NO_CLAIM = ("--set", "snapshots.enabled=false")


@pytest.mark.parametrize(
    ("options", "message", "fix"),
    [
        (["--nodes", "3", "--claim", "disk"], "'disk' is ReadWriteOnce, but 3 nodes need ReadWriteMany", "shared"),
        (["--claim", "absent"], "no claim 'absent' in namespace", "omit --claim"),
        (["--storage-class", "absent"], "the cluster has no storage class 'absent'; there ", "--storage-class"),
        (["--nodes", "2", "--storage-class", "{namespace}"], "provides disks (ebs.csi.aws.com)", "--storage-class"),
        (["--gpus-per-node", "99"], "gpusPerNode: 99, but no node of the cluster has more than", "--no-checks"),
    ],
)
def test_a_job_that_the_cluster_can_never_run(namespace: str, options: list[str], message: str, fix: str) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    apply(namespace, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}, "spec": claim})
    disks = {"provisioner": "ebs.csi.aws.com", "metadata": {"name": namespace}}
    apply(namespace, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"} | disks)
    try:
        words = job("run", namespace, *(option.format(namespace=namespace) for option in options))
        problem, _, advice = kitctl("submit", *words, exit_code=2).partition("fix: ")
        assert message in problem
        assert fix in advice
        assert left(namespace) == set()
    finally:
        kubectl("delete", "storageclass", namespace)


def test_a_namespace_that_does_not_exist() -> None:
    output = kitctl("submit", *job("run", "no-such-namespace", *IDLE), exit_code=2)
    assert 'namespaces "no-such-namespace" not found' in output
    assert "fix: create it (kubectl create namespace NAME), or choose another with -n" in output


def test_a_cluster_without_the_operator(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API group is renamed to one that no server has."""
    nowhere = resources.Resource("none.kitctl.dev/v1", "pytorchjobs")
    monkeypatch.setitem(resources.RESOURCES, "PyTorchJob.kubeflow.org", nowhere)
    output = kitctl("submit", *job("run", namespace, *IDLE, "--kind", "PyTorchJob"), exit_code=2)
    assert "the cluster does not know this kind of object" in output
    assert "--kind IndexedJob" in output
    assert left(namespace) == set()
    kitctl("submit", *job("run", namespace, *IDLE))
    assert "run" in kitctl("list", "-n", namespace)
    kitctl("status", "other", "-n", namespace, exit_code=102)
    kitctl("delete", "run", "-n", namespace)


def test_credentials_that_are_wrong_or_expired(namespace: str, tmp_path: Path) -> None:
    path = kubeconfig_with({"token": "expired"}, namespace, tmp_path)
    for words in (("list",), ("status", "run"), ("submit", "--name", "run")):
        output = kitctl(*words, exit_code=1, kubeconfig=path)
        assert "Unauthorized" in output
        assert "fix: the credentials are wrong or expired" in output


def test_an_image_that_cannot_be_pulled_and_gpus_that_no_node_has(namespace: str) -> None:
    kitctl("submit", "--name", "image", "-n", namespace, "--image", f"{REGISTRY}/no/such:image", *NO_CLAIM)
    kitctl("submit", *job("gpus", namespace, *NO_CLAIM, "--gpus-per-node", "99", "--no-checks"))
    waits = until_status("gpus", namespace, lambda state: "Insufficient nvidia.com/gpu" in state["reason"])
    assert waits["phase"] == "Pending"
    waits = until_status("image", namespace, lambda state: "no/such:image" in state["reason"])
    assert waits["phase"] == "Pending"
    assert waits["nodes"][0]["reason"].endswith("(check the image's name, and the cluster's right to pull it)")
    output = kitctl("wait", "image", "-n", namespace, "--timeout", "1s", exit_code=124)
    assert "image: Pending (" in output


def test_a_quota_that_is_too_small_for_the_pods(namespace: str) -> None:
    kubectl("create", "quota", "small", "-n", namespace, "--hard=pods=1")
    until(lambda: get(namespace, "quota", "small").get("status"))
    output = kitctl("submit", *job("large", namespace, *NO_CLAIM, "--nodes", "2"), exit_code=2)
    assert "quota 'small' of namespace" in output
    assert left(namespace) == set()
    kitctl("submit", *job("other", namespace, *IDLE))
    until(lambda: get(namespace, "quota", "small")["status"].get("used", {}).get("pods") == "1")
    output = kitctl("submit", *job("run", namespace, *NO_CLAIM))
    assert "its pods wait until there is room for them: Pod: " in output
    until_status("run", namespace, lambda state: "exceeded quota: small" in state["reason"])
    output = kitctl("wait", "run", "-n", namespace, "--timeout", "1s", exit_code=124)
    assert "the namespace's quota small is used up" in output


def test_a_quota_that_is_too_small_for_the_job_itself(namespace: str) -> None:
    kubectl("create", "quota", "none", "-n", namespace, "--hard=count/jobs.batch=0")
    until(lambda: get(namespace, "quota", "none").get("status"))
    output = kitctl("submit", *job("run", namespace, *NO_CLAIM), exit_code=2)
    assert "exceeded quota: none" in output
    assert "fix: ask for less, or for a larger quota" in output
    assert left(namespace) == set()


def test_a_quota_and_a_limit_range_that_require_limits(namespace: str) -> None:
    kubectl("create", "quota", "all", "-n", namespace, "--hard=limits.memory=8Gi,requests.cpu=4")
    until(lambda: get(namespace, "quota", "all").get("status"))
    words = job("run", namespace, *IDLE)
    output = kitctl("submit", *words, exit_code=2)
    assert "must specify limits.memory for: pytorch" in output
    assert "fix: a quota of the namespace requires it: add resources.limits.memory to the job" in output
    assert "add resources.limits.memory to the job" in kitctl("doctor", *words, exit_code=1)
    item = {"type": "Container", "default": {"memory": "256Mi"}, "max": {"memory": "1Gi"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "few"}, "spec": {"limits": [item]}}
    apply(namespace, limits)
    output = kitctl("submit", *words, "--memory", "2Gi", exit_code=2)
    assert "maximum memory usage per Container is 1Gi" in output
    assert "describe limitrange allows" in output
    assert left(namespace) == set()
    kitctl("submit", *words)
    (made,) = get(namespace, "jobs")["items"]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}}, "below the default limit"


def test_rejections_by_admission_are_found_before_anything_is_created(namespace: str) -> None:
    output = kitctl("submit", *job("run", namespace, *NO_CLAIM, "--priority", "no-such"), exit_code=2)
    assert "no PriorityClass with name no-such was found" in output
    assert left(namespace) == set()


def test_pods_that_break_the_security_profile(namespace: str) -> None:
    words = job("run", namespace, *NO_CLAIM, "--set", "security.profile=none")
    output = kitctl("submit", *words, exit_code=2)
    assert "violates PodSecurity" in output
    assert "security.profile: restricted is the default" in output
    assert left(namespace) == set()
    output = kitctl("submit", *words, "--no-checks")
    assert "the cluster warns: would violate PodSecurity" in output
    waits = until_status("run", namespace, lambda state: "violates PodSecurity" in state["reason"])
    assert (waits["phase"], status("run", namespace)["readyNodes"]) == ("Pending", 0)


def kubeconfig_with(user: dict[str, str], namespace: str, folder: Path) -> Path:
    """A kubeconfig of the cluster for another user."""
    known = json.loads(kubectl("config", "view", "--raw", "-o", "json", f"--kubeconfig={KUBECONFIG}"))
    context = {"cluster": known["clusters"][0]["name"], "user": "other", "namespace": namespace}
    changes = {
        "users": [{"name": "other", "user": user}],
        "contexts": [{"name": "other", "context": context}],
        "current-context": "other",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(known | changes))
    return path
