"""Whatever happens to its ranks, pods and nodes, a job completes, and each sample counts once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.commands import kitctl
from tests.cluster.jobs import KINDS, Run, often
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import FAKE_GPUS, TRAINER_IMAGE
from tests.cluster.kubectl import Object, apply, get, kubectl, until
from tests.cluster.test_cluster import RESTRICTED
from tests.cluster.toy import EPOCHS, all_recover, assert_complete_and_exact, submit_on_three_nodes, submit_toy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_a_killed_rank_a_deleted_pod_and_the_loss_of_node_0(namespace: str, kind: str) -> None:
    (run,) = submit_on_three_nodes(namespace, [kind])
    before = uids_of(run)
    with all_recover(run):
        kill_rank(run, 2)
    for index in (1, 0):
        with all_recover(run):
            delete_pod(run, index)
    assert_complete_and_exact(run)
    assert len(uids_of(run) & before) == 1
    assert "killed by SIGKILL" in run.logs()
    assert_logs_outlive_the_pods(run)
    assert_the_report_is_up_to_date(run)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("kind", often("PyTorchJob"))
def test_a_drained_node_and_a_preemption(namespace: str, kind: str) -> None:
    with priority_below_all_others(namespace):
        (run,) = submit_on_three_nodes(namespace, [kind], "--gpus-per-node", "1", "--priority", namespace)
        for disrupt in (drain, preempt):
            (pod,) = run.pods(1)
            with all_recover(run):
                disrupt(run, pod["spec"]["nodeName"])
        assert_complete_and_exact(run)


@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_an_elastic_job_completes_without_its_last_node(namespace: str, kind: str) -> None:
    run = submit_toy(namespace, kind, "--nodes", "2:4", "--set", "scheduling.spread=require", epochs=2)
    assert_complete_and_exact(run, epochs=2)
    assert 2 <= len(run.report()["nodes"]) <= 3


def kill_rank(run: Run, index: int) -> None:
    """SIGKILL to a node's rank, as the kernel does it when memory runs out: by a drill, which measures what follows."""
    rank = run.report()["nodes"][str(index)]["ranks"][0]
    told = kitctl("drill", run.name, "-n", run.namespace, "--fault", "kill-rank", "--rank", str(rank), "-y")
    assert f"rank {rank} (node {index}): recovered" in told


def delete_pod(run: Run, index: int) -> None:
    """SIGTERM, and some time to follow it."""
    (pod,) = run.pods(index)
    kubectl("delete", "pod", "-n", run.namespace, pod["metadata"]["name"], "--wait=false")


def drain(run: Run, node: str) -> None:
    """Evict a job's pod from a node that then takes new ones again."""
    ours = f"app.kubernetes.io/instance={run.name}"  # a name of its own: nodes are everybody's
    try:
        kubectl("drain", node, "--pod-selector", ours, "--delete-emptydir-data", "--timeout=90s")
    finally:
        kubectl("uncordon", node)


def preempt(run: Run, node: str) -> None:
    """A pod that counts for more takes all GPUs of a node for a moment."""
    pod = pod_with_gpus(FAKE_GPUS, node=node)
    apply(run.namespace, pod)
    # Not `kubectl wait`: on a busy machine its first answer may come from before the pod was made.
    until(lambda: get(run.namespace, "pod", "urgent")["status"]["phase"] == "Succeeded")


def pod_with_gpus(count: int, *, node: str) -> Object:
    container = {
        "name": "main",
        "image": pushed(TRAINER_IMAGE),
        "args": ["true"],
        "resources": {"limits": {"nvidia.com/gpu": str(count)}},
        "securityContext": RESTRICTED,
    }
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": spec}


@contextmanager
def priority_below_all_others(name: str) -> Iterator[None]:
    """A PriorityClass whose pods make room for any others."""
    kubectl("create", "priorityclass", name, "--value=-1")
    try:
        yield
    finally:
        kubectl("delete", "priorityclass", name)


def uids_of(run: Run) -> set[str]:
    """Of the pods that are its nodes now."""
    newest = {pod["metadata"]["labels"][KINDS[run.kind][2]]: pod for pod in sorted(run.pods(), key=created)}
    return {pod["metadata"]["uid"] for pod in newest.values()}


def created(pod: Object) -> str:
    return str(pod["metadata"]["creationTimestamp"])


def assert_logs_outlive_the_pods(run: Run) -> None:
    """What rank 0 said in all its lives, on whatever nodes, is beside the snapshots."""
    kept = "".join(path.read_text() for path in run.folder.glob("logs/node-*/*.log"))
    assert {f"epoch {epoch}/{EPOCHS} done" for epoch in range(1, EPOCHS + 1)} <= set(
        re.findall(r"\[rank 0\]: (epoch .* done)", kept)
    )


def assert_the_report_is_up_to_date(run: Run) -> None:
    report = run.report()
    assert report["progress"]["step"] == report["progress"]["total_steps"]
    pods = {pod["metadata"]["name"] for pod in run.pods() if pod["status"]["phase"] == "Succeeded"}
    assert {place["pod"] for place in report["nodes"].values()} == pods
