"""The cluster has what the other tests rely on, and the image satisfies the strictest Pod Security profile."""

from __future__ import annotations

import pytest

from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import FAKE_GPUS, TRAINER_IMAGE
from tests.cluster.kubectl import Object, apply, get, kubectl

pytestmark = pytest.mark.cluster

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def test_three_workers_with_gpus() -> None:
    nodes = get("default", "nodes", "-l", "!node-role.kubernetes.io/control-plane,!kitctl.test/fake")["items"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == [str(FAKE_GPUS)] * 3


def test_pytorchjob_is_served() -> None:
    assert "pytorchjobs.kubeflow.org" in kubectl("get", "crd", "-o", "name")


def test_a_volume_is_shared_by_pods_on_three_nodes(namespace: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    meet = 'touch /data/$JOB_COMPLETION_INDEX; until [ "$(ls /data | wc -l)" = 3 ]; do sleep 0.2; done'
    apply(namespace, claim, indexed_job(meet, pods=3, claim="data"))
    kubectl("wait", "-n", namespace, "job/pods", "--for=condition=Complete", "--timeout=120s")
    pods = get(namespace, "pods")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3


def test_the_image_runs_its_init_unprivileged_on_a_read_only_root(namespace: str) -> None:
    look = "cat /proc/1/comm; id -u; touch /workspace/x || echo read-only; touch /tmp/x; python -c 'import kittrain'"
    apply(namespace, indexed_job(f"exec 2>/dev/null; {look}", pods=1))
    kubectl("wait", "-n", namespace, "job/pods", "--for=condition=Complete", "--timeout=120s")
    assert kubectl("logs", "-n", namespace, "job/pods").split() == ["tini", "1000", "read-only"]


def indexed_job(script: str, *, pods: int, claim: str = "") -> Object:
    """Pods that run a shell script in the trainer image, each on another Kubernetes node."""
    volumes: dict[str, Object] = {"/tmp": {"name": "tmp", "emptyDir": {}}}
    if claim:
        volumes["/data"] = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    container = {
        "name": "main",
        "image": pushed(TRAINER_IMAGE),
        "args": ["sh", "-ec", script],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": volume["name"], "mountPath": path} for path, volume in volumes.items()],
    }
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": "pods"}}}
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": list(volumes.values()),
    }
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pods"}, "spec": spec}
