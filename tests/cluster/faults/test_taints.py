"""A Kubernetes node gets a taint that announces its end: the pod on it is drained before anybody deletes it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.jobs import Run
from tests.cluster.kubectl import Object, get, kubectl, until
from tests.cluster.release import Release
from tests.cluster.toy import assert_complete_and_exact, has_trained, submit_toy
from tests.exact import recorded

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

EPOCHS = 20


@pytest.fixture
def taint(namespace: str) -> Iterator[str]:
    """A key of this test's own, which is removed from all nodes."""
    key = f"{namespace}.example/leaving"
    yield key
    for node in get("", "nodes")["items"]:
        if any(one["key"] == key for one in node["spec"].get("taints", [])):
            kubectl("taint", "node", node["metadata"]["name"], f"{key}-")


def pod_now(run: Run, pod: Object) -> Object:
    """A pod as it is now."""
    (found,) = (one for one in run.pods(1) if one["metadata"]["uid"] == pod["metadata"]["uid"])
    return found


@pytest.mark.wide
def test_a_node_that_is_tainted_is_drained_before_its_pods_are_deleted(
    namespace: str, release: Release, taint: str
) -> None:
    asks = ("--nodes", "2", "--set", "scheduling.spread=require", "--set", f"policy.drainTaints=[{taint}]")
    run = submit_toy(namespace, "IndexedJob", *asks, epochs=EPOCHS)
    until(partial(has_trained, run, steps=10), seconds=300)
    assert run.logs().count("policy.drainTaints has no answer: node ") == 2, "nobody has allowed it yet"
    assert "nodeTaints of charts/platform" in run.logs()

    release.team = {"nodeTaints": True}
    release.apply()
    (pod,) = run.pods(1)
    kubectl("taint", "node", pod["spec"]["nodeName"], f"{taint}=soon:NoSchedule")
    said = "this machine is about to be taken away (taint "
    until(lambda: said in kubectl("get", "pods", "-n", namespace, "-o", "jsonpath={..message}") + run.logs())
    assert "deletionTimestamp" not in pod_now(run, pod)["metadata"], "nobody has deleted it"
    assert_complete_and_exact(run, epochs=EPOCHS)
    steps = sorted(recorded(run.folder / "record"))
    assert [step for _, step in steps] == list(range(1, len(steps) + 1)), "no step was lost or taken twice"
    (last,) = [one for one in run.pods(1) if one["status"]["phase"] == "Succeeded"]
    assert last["spec"]["nodeName"] != pod["spec"]["nodeName"]
