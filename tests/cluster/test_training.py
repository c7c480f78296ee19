"""Jobs of both kinds train on the cluster to the end, whatever happens to their pods."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.cluster.jobs import KINDS, Run, submit
from tests.cluster.kubectl import kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SAMPLES, EPOCHS = 1024, 8
TOY = ("-m", "trainer.workloads.toy", str(EPOCHS), "1", "--samples", str(SAMPLES), "--batch_size", "64")
SLOW = ("--step-time", "0.1", "--record", "/snapshots/record")


@pytest.mark.parametrize("kind", KINDS)
def test_twelve_ranks_on_three_nodes_learn_the_digits(namespace: str, kind: str) -> None:
    run = submit(namespace, kind, "--nodes", "3", "--gpus-per-node", "4")
    run.wait()
    logs = run.logs()
    assert set(re.findall(r"\[rank (\d+)\]: ", logs)) == {str(rank) for rank in range(12)}
    assert float(re.findall(r"accuracy ([\d.]+) %", logs)[-1]) > 90
    assert len({pod["spec"]["nodeName"] for pod in run.pods()}) == 3


@pytest.mark.parametrize("index", [1, 0], ids=["node-1", "the-node-with-the-rendezvous"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_pod_is_replaced_and_each_sample_counts_once(namespace: str, kind: str, index: int) -> None:
    run = submit(namespace, kind, "--nodes", "3", "--procs-per-node", "1", *TOY, *SLOW)
    until(lambda: any(step["step"] > 20 for step in run.steps()))
    (pod,) = run.pods(index)
    kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=false")
    run.wait()
    assert {pod["metadata"]["uid"] for pod in run.pods(index)} != {pod["metadata"]["uid"]}
    assert_each_sample_counts_once(run)


def assert_each_sample_counts_once(run: Run) -> None:
    """A step that was taken again, after a restart, counts as its last generation took it."""
    generations: dict[int, int] = defaultdict(int)
    for step in run.steps():
        generations[step["step"]] = max(generations[step["step"]], step["generation"])
    counted = [
        sample for step in run.steps() if step["generation"] == generations[step["step"]] for sample in step["ids"]
    ]
    assert sorted(counted) == sorted([*range(SAMPLES)] * EPOCHS)
