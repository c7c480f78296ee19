"""A Kubernetes node loses power, and comes back or not."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import pytest

from tests.cluster.commands import until_status
from tests.cluster.jobs import Run
from tests.cluster.kubectl import kubectl, until
from tests.cluster.power import powered_off, until_noticed
from tests.cluster.toy import (
    all_recover,
    assert_complete_and_exact,
    assert_exact,
    has_trained,
    may_end,
    submit_on_three_nodes,
    submit_toy,
)

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1500)]

SHORT: Final = ("--grace-period", "20s")


# Two at a time: three nodes have one without a node 0.
@pytest.mark.parametrize("kinds", [("IndexedJob", "TrainJob"), ("JobSet", "PyTorchJob")])
@pytest.mark.long
def test_a_node_that_is_off_for_a_moment(namespace: str, kinds: tuple[str, ...]) -> None:
    runs = submit_on_three_nodes(namespace, kinds)
    with all_recover(*runs), powered_off(node_without_stores(runs)):
        pass
    for run in runs:
        may_end(run)
        assert_complete_and_exact(run)


def test_a_node_that_never_comes_back(namespace: str) -> None:
    elastic = submit_toy(namespace, "IndexedJob", *SHORT, "--nodes", "2:3", name="elastic")
    fixed = submit_toy(namespace, "IndexedJob", *SHORT, "--nodes", "3", name="fixed")
    for run in (elastic, fixed):
        until(partial(has_trained, run, steps=20), seconds=300)
    node = node_without_stores([elastic, fixed])
    with powered_off(node):
        # Kubernetes completes a job once all its pods have certainly ended; kitctl once the result cannot change.
        until_status("elastic", namespace, lambda state: state["phase"] == "Succeeded")
        assert_exact(elastic)
        until_noticed(node)
        (lost,) = (pod["metadata"]["name"] for pod in fixed.pods() if pod["spec"]["nodeName"] == node)
        kubectl("delete", "pod", "-n", namespace, lost, "--grace-period=1", "--wait=false")  # as Kubernetes does later
        state = until_status("fixed", namespace, lambda state: "not confirmed" in reason_of(lost, state))
        reason = reason_of(lost, state)
        match = re.search(rf"node {node} is unreachable;.* kubectl (taint node {node} (\S+)=\S+)", reason)
        assert match
        kubectl(*match[1].split())
        try:
            assert_complete_and_exact(fixed)
        finally:
            kubectl("taint", "node", node, f"{match[2]}-")


def node_without_stores(runs: list[Run]) -> str:
    """A Kubernetes node with a pod of each of these jobs, but no node 0, which has the rendezvous."""
    stores = {pod["spec"]["nodeName"] for run in runs for pod in run.pods(0)}
    hosts = [{pod["spec"]["nodeName"] for pod in run.pods()} for run in runs]
    shared: set[str] = set.intersection(*hosts) - stores
    return min(shared)


def reason_of(pod: str, state: dict[str, Any]) -> str:
    """The reason that ``kitctl status`` shows for a pod."""
    (one,) = (one for one in state["nodes"] if one["pod"] == pod)
    return str(one["reason"])
