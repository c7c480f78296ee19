"""Jobs in a queue of Kueue: they wait with its reason, stop for good, are preempted without loss, and start smaller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from tests.cluster.commands import IDLE, job, kitctl, status, until_status
from tests.cluster.jobs import KINDS, Run, often
from tests.cluster.kind.settings import KUEUE_LABEL
from tests.cluster.kubectl import Object, get, kubectl, until
from tests.cluster.toy import ORDER, all_recover, assert_complete_and_exact, has_trained

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
LONG: Final = 10_000  # epochs
MakeQueue = Callable[..., None]


@pytest.fixture
def make_queue(namespace: str) -> Iterator[MakeQueue]:
    """Make the LocalQueue ``team`` of a new ClusterQueue with room for so many nodes at once."""
    kubectl("label", "namespace", namespace, f"{KUEUE_LABEL}=true")

    def make(nodes: int, **spec: Any) -> None:
        quotas = {"cpu": "100", "memory": "100Gi", "pods": nodes}
        flavor = {"name": namespace, "resources": [{"name": key, "nominalQuota": one} for key, one in quotas.items()]}
        groups = [{"coveredResources": [*quotas], "flavors": [flavor]}]
        own = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        create("ResourceFlavor", namespace)
        create("ClusterQueue", namespace, spec={"resourceGroups": groups} | own | spec)
        create("LocalQueue", "team", namespace, spec={"clusterQueue": namespace})
        active = '--for=jsonpath={.status.conditions[?(@.type=="Active")].status}=True'
        kubectl("wait", "-n", namespace, "localqueue/team", active, "--timeout=30s")

    yield make
    for kind in ("clusterqueue", "resourceflavor"):
        kubectl("delete", kind, namespace, "--ignore-not-found", "--wait=false")


def create(kind: str, name: str, namespace: str = "", **parts: Any) -> None:
    where = {"name": name} | ({"namespace": namespace} if namespace else {})
    thing = {"apiVersion": KUEUE, "kind": kind, "metadata": where, **parts}
    kubectl("create", "-f", "-", given=json.dumps(thing))


def submit(run: Run, *options: str, epochs: int = 1, nodes: str = "2") -> None:
    """Submit a job to the queue, with ten recorded steps per second."""
    where = ("--queue", "team", "--kind", run.kind, "--nodes", nodes, "--procs-per-node", "1", "--snapshot-every", "20")
    data = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch), "--step-time", "0.1")
    toy = ("-m", "kittrain.workloads.toy", str(epochs), "1", *data, "--record", "/snapshots/record")
    kitctl("submit", *job(run.name, run.namespace, *where, *options), *toy)


def does(run: Run, verb: str, *options: str, exit_code: int = 0) -> str:
    return kitctl(verb, run.name, "-n", run.namespace, *options, exit_code=exit_code)


def phase(run: Run) -> str:
    found: str = status(run.name, run.namespace)["phase"]
    return found


def reserved(namespace: str) -> int:
    """How many Workloads hold quota of the queue."""
    found: int = get("", "clusterqueue", namespace)["status"]["reservingWorkloads"]
    return found


def live(run: Run) -> Object:
    return get(run.namespace, KINDS[run.kind][0], run.name)


@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_a_job_waits_with_the_queues_reason_until_quota_is_freed_for_good(
    namespace: str, make_queue: MakeQueue, kind: str
) -> None:
    make_queue(2)
    first, second = (Run(namespace=namespace, name=name, kind=kind) for name in ("first", "second"))
    submit(first, epochs=LONG)
    until(partial(has_trained, first))
    submit(second)
    waiting = until_status("second", namespace, lambda state: state["queue"]["position"])
    assert (waiting["phase"], waiting["queue"]["position"]) == ("Pending", 1)
    assert "insufficient unused quota for pods" in waiting["reason"]
    assert "waits in queue team, position 1: couldn't assign flavors" in does(second, "status")

    does(first, "suspend")
    assert phase(first) == "Suspended"
    assert_complete_and_exact(second, epochs=1)
    assert phase(second) == "Succeeded"
    until(lambda: reserved(namespace) == 0)
    assert phase(first) == "Suspended", "Kueue has room for it, and lets it be"
    with all_recover(first):
        does(first, "resume")
    does(first, "cancel")
    assert phase(first) == "Cancelled"
    until(lambda: reserved(namespace) == 0)


def test_what_the_queue_could_never_admit_is_refused(namespace: str, make_queue: MakeQueue) -> None:
    make_queue(2)

    def refused(*options: str) -> str:
        output = kitctl("submit", *job("run", namespace, "--queue", "team", *IDLE, *options), exit_code=2)
        assert not get(namespace, "jobs,services")["items"]
        return output

    assert "no LocalQueue 'other' in namespace" in refused("--queue", "other")
    assert "can never admit 3 such nodes: pods: 3 needed, at most 2" in refused("--nodes", "3")
    assert "no WorkloadPriorityClass 'urgent'" in refused("--queue-priority", "urgent")
    kubectl("patch", "clusterqueue", namespace, "--type=merge", "-p", '{"spec": {"stopPolicy": "Hold"}}')
    until(lambda: "is inactive" in kitctl("doctor", *job("run", namespace, "--queue", "team"), exit_code=1))
