"""After faults of its ranks, pods and nodes, a job completes, and each sample counts once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.cluster.commands import State, kitctl, until_status
from tests.cluster.jobs import KINDS, Run, often
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import FAKE_GPUS, TRAINER_IMAGE
from tests.cluster.kubectl import Object, apply, get, kubectl, until
from tests.cluster.test_cluster import RESTRICTED
from tests.cluster.toy import (
    EPOCHS,
    all_recover,
    assert_complete_and_exact,
    has_trained,
    may_end,
    submit_on_three_nodes,
    submit_toy,
)

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
    may_end(run)
    assert_complete_and_exact(run)
    assert len(uids_of(run) & before) == 1
    assert "killed by SIGKILL" in run.logs()
    assert_logs_outlive_the_pods(run)
    assert_the_report_is_up_to_date(run)


@pytest.mark.wide
@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("kind", often("PyTorchJob"))
def test_a_drained_node_and_a_preemption(namespace: str, kind: str) -> None:
    with priority_above_all_others(namespace):
        (run,) = submit_on_three_nodes(namespace, [kind], "--gpus-per-node", "1")
        for disrupt in (drain, preempt):
            (pod,) = run.pods(1)
            with all_recover(run):
                disrupt(run, pod["spec"]["nodeName"])
        may_end(run)
        assert_complete_and_exact(run)


@pytest.mark.wide
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_a_spare_takes_the_place_of_a_deleted_pod(namespace: str, kind: str) -> None:
    run, spare = guarded(namespace, kind)
    deleted, stays = (index for index in (2, 1, 0) if index != spare)
    with all_recover(run):
        delete_pod(run, deleted)  # drained: no step is lost
    assert set(run.report()["nodes"]) == {str(stays), str(spare)}
    assert_complete_and_exact(run)  # whether or not the pod's successor is there by then


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_successor_of_a_lost_pod_is_the_next_spare(namespace: str, kind: str) -> None:
    run, spare = guarded(namespace, kind, epochs=5 * EPOCHS)
    for index in ((2 if spare == 1 else 1), spare or 2):
        with all_recover(run):
            delete_pod(run, index, "--grace-period=0", "--force")
        state = until_status(run.name, namespace, partial(has_spare, index))
        assert (state["nodeRange"], state["readyNodes"], state["worldSize"]) == ("2+1", 2, 2)
    assert_complete_and_exact(run, epochs=5 * EPOCHS)


def has_spare(index: int, state: State) -> bool:
    """Whether that node stands by, and no other."""
    return bool(state["spares"] == [index])


def guarded(namespace: str, kind: str, *, epochs: int = EPOCHS) -> tuple[Run, int]:
    """A job of two nodes and one that stands by, whichever came last; returns its index, too."""
    run = submit_toy(namespace, kind, "--nodes", "2+1", epochs=epochs)
    (spare,) = until_status(run.name, namespace, lambda state: state["spares"])["spares"]
    until(partial(has_trained, run, steps=5))
    return run, int(spare)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_an_elastic_job_completes_without_its_last_node(namespace: str, kind: str) -> None:
    run = submit_toy(namespace, kind, "--nodes", "2:4", "--set", "scheduling.spread=require", epochs=2)
    assert_complete_and_exact(run, epochs=2)
    assert 2 <= len(run.report()["nodes"]) <= 3


def kill_rank(run: Run, index: int) -> None:
    """SIGKILL to a node's rank, as the kernel does when memory runs out: by a drill, which measures the recovery."""
    rank = run.report()["nodes"][str(index)]["ranks"][0]
    output = kitctl("drill", run.name, "-n", run.namespace, "--fault", "kill-rank", "--rank", str(rank), "-y")
    assert f"rank {rank} (node {index}): recovered" in output


def delete_pod(run: Run, index: int, *options: str) -> None:
    """SIGTERM, then SIGKILL after the grace period."""
    pod = max(run.pods(index), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    kubectl("delete", "pod", "-n", run.namespace, pod["metadata"]["name"], "--wait=false", *options)


def drain(run: Run, node: str) -> None:
    """Drain a Kubernetes node of a job's pod, and uncordon it."""
    ours = f"app.kubernetes.io/instance={run.name}"  # a unique name: other tests use the same nodes
    try:
        kubectl("drain", node, "--pod-selector", ours, "--delete-emptydir-data", "--timeout=90s")
    finally:
        kubectl("uncordon", node)


def preempt(run: Run, node: str) -> None:
    """A pod of higher priority takes all GPUs of a node for a moment."""
    pod = pod_with_gpus(FAKE_GPUS, node=node)
    pod["spec"]["priorityClassName"] = run.namespace
    apply(run.namespace, pod)
    # Not `kubectl wait`: on a busy machine its first answer may predate the pod.
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
def priority_above_all_others(name: str) -> Iterator[None]:
    """A PriorityClass whose pods preempt any others; not one below 0 for the job, which JobSet cannot start."""
    kubectl("create", "priorityclass", name, "--value=1")
    try:
        yield
    finally:
        kubectl("delete", "priorityclass", name)


def uids_of(run: Run) -> set[str]:
    """The uids of its current pods."""
    newest = {pod["metadata"]["labels"][KINDS[run.kind][2]]: pod for pod in sorted(run.pods(), key=created)}
    return {pod["metadata"]["uid"] for pod in newest.values()}


def created(pod: Object) -> str:
    return str(pod["metadata"]["creationTimestamp"])


def assert_logs_outlive_the_pods(run: Run) -> None:
    """The log of rank 0, from all of its pods, is next to the snapshots."""
    kept = "".join(path.read_text() for path in run.folder.glob("logs/node-*/*.log"))
    assert {f"epoch {epoch}/{EPOCHS} done" for epoch in range(1, EPOCHS + 1)} <= set(
        re.findall(r"\[rank 0\]: (epoch .* done)", kept)
    )


def assert_the_report_is_up_to_date(run: Run) -> None:
    report = run.report()
    assert report["progress"]["step"] == report["progress"]["totalSteps"]
    pods = {pod["metadata"]["name"] for pod in run.pods() if pod["status"]["phase"] == "Succeeded"}
    assert {assignment["pod"] for assignment in report["nodes"].values()} == pods
