"""Jobs in a queue of Kueue: they wait with its reason, stop for good, are preempted without loss, and start smaller."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl import kinds
from tests.cluster.commands import IDLE, job, kitctl, status, until_status
from tests.cluster.jobs import KINDS, Run, often
from tests.cluster.kind.settings import KUEUE_LABEL, SHORT_COMMANDS, TORCH_IMAGE
from tests.cluster.kubectl import Object, get, kubectl, until
from tests.cluster.submit.test_refusals import kubeconfig_with
from tests.cluster.toy import ORDER, all_recover, assert_complete_and_exact, assert_exact, has_trained
from tests.exact import recorded

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.timeout(1200)]

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
LONG: Final = 10_000  # epochs
# The kinds that may be in a queue: Indexed Jobs in each test run, the others in long ones.
QUEUED: Final = [one for one in often("IndexedJob") if kinds.KINDS[str(one.values[0])].in_queues]
MakeQueue = Callable[..., None]


@pytest.fixture
def make_queue(namespace: str) -> Iterator[MakeQueue]:
    """Make the LocalQueue ``team`` of a new ClusterQueue with room for so many nodes at once."""
    kubectl("label", "namespace", namespace, f"{KUEUE_LABEL}=true")

    def make(nodes: int, *, flavor: Object | None = None, **spec: Any) -> None:
        quotas = {"cpu": "100", "memory": "100Gi", "pods": nodes}
        quota = {"name": namespace, "resources": [{"name": key, "nominalQuota": one} for key, one in quotas.items()]}
        groups = [{"coveredResources": [*quotas], "flavors": [quota]}]
        own = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        create("ResourceFlavor", namespace, spec=flavor or {})
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
    """Submit a job to the queue, with ten recorded steps per second, in an image without the trainer."""
    where = ("--queue", "team", "--kind", run.kind, "--nodes", nodes, "--procs-per-node", "1", "--snapshot-every", "20")
    data = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch), "--step-time", "0.1")
    toy = ("-m", "kittrain.workloads.toy", str(epochs), "1", *data, "--record", "/snapshots/record")
    kitctl("submit", *job(run.name, run.namespace, *where, *options, image=TORCH_IMAGE), *toy)


def does(run: Run, command: str, *options: str, exit_code: int = 0) -> str:
    return kitctl(command, run.name, "-n", run.namespace, *options, exit_code=exit_code)


def phase(run: Run) -> str:
    found: str = status(run.name, run.namespace)["phase"]
    return found


def reserved(namespace: str) -> int:
    """How many Workloads hold quota of the queue."""
    found: int = get("", "clusterqueue", namespace)["status"]["reservingWorkloads"]
    return found


def live(run: Run) -> Object:
    return get(run.namespace, KINDS[run.kind][0], run.name)


@pytest.mark.parametrize("kind", QUEUED)
def test_a_job_waits_with_the_queues_reason_until_quota_is_freed_for_good(
    namespace: str, make_queue: MakeQueue, kind: str
) -> None:
    make_queue(1)
    first, second = (Run(namespace=namespace, name=name, kind=kind) for name in ("first", "second"))
    submit(first, epochs=LONG, nodes="1")
    until(partial(has_trained, first))
    submit(second, nodes="1")
    waiting = until_status("second", namespace, lambda state: "insufficient unused quota for pods" in state["reason"])
    assert (waiting["phase"], waiting["queue"]["position"]) == ("Pending", 1)
    assert "waits in queue team, position 1: couldn't assign flavors" in does(second, "status")

    does(first, "suspend")
    assert phase(first) == "Suspended"
    assert_complete_and_exact(second, epochs=1)
    assert phase(second) == "Succeeded"
    until(lambda: reserved(namespace) == 0)
    assert phase(first) == "Suspended", "Kueue has quota for it, and does not start it"
    with all_recover(first):
        does(first, "resume")
    does(first, "cancel")
    assert phase(first) == "Cancelled"
    until(lambda: reserved(namespace) == 0)


def test_a_job_that_the_queue_could_never_admit_is_rejected(namespace: str, make_queue: MakeQueue) -> None:
    make_queue(2)

    def refused(*options: str) -> str:
        output = kitctl("submit", *job("run", namespace, "--queue", "team", *IDLE, *options), exit_code=2)
        assert not get(namespace, "jobs,services")["items"]
        return output

    assert "no LocalQueue 'other' in namespace" in refused("--queue", "other")
    assert "can never admit 3 such nodes: pods: 3 needed, at most 2" in refused("--nodes", "3")
    assert "a TrainJob cannot wait in a queue" in refused("--kind", "TrainJob")
    assert "no WorkloadPriorityClass 'urgent'" in refused("--queue-priority", "urgent")
    kubectl("patch", "clusterqueue", namespace, "--type=merge", "-p", '{"spec": {"stopPolicy": "Hold"}}')
    until(lambda: "is inactive" in kitctl("doctor", *job("run", namespace, "--queue", "team")))


@pytest.mark.long
@pytest.mark.parametrize("kind", QUEUED)
def test_a_preempted_job_loses_no_step_and_counts_each_sample_once(
    namespace: str, make_queue: MakeQueue, priorities: tuple[str, str], kind: str
) -> None:
    low, high = priorities
    make_queue(2, preemption={"withinClusterQueue": "LowerPriority"})
    first, second = (Run(namespace=namespace, name=name, kind=kind) for name in ("first", "second"))
    epochs = 30
    submit(first, "--queue-priority", low, epochs=epochs)
    until(partial(has_trained, first, steps=30))
    submit(second, "--queue-priority", high)
    until_status("first", namespace, lambda state: "reempted" in state["reason"] and state["phase"] == "Pending")
    until_status("second", namespace, lambda state: state["phase"] == "Succeeded")
    first.wait()
    steps = sorted(recorded(first.folder / "record"))  # generation and step
    assert {generation for generation, _ in steps} == {1, 2}
    assert [step for _, step in steps] == list(range(1, len(steps) + 1)), "no step was lost or taken twice"
    assert_exact(first, epochs=epochs)
    audited = f"proved: {epochs} epochs of {ORDER.samples} samples, each counted exactly once"
    assert audited in kitctl("audit", "first", "-n", namespace)


def test_goodput_tells_waits_in_the_queue_from_a_stop_by_the_user_also_at_the_end(
    namespace: str, make_queue: MakeQueue, priorities: tuple[str, str]
) -> None:
    low, high = priorities
    make_queue(1, preemption={"withinClusterQueue": "LowerPriority"})
    first, second = (Run(namespace=namespace, name=name, kind="IndexedJob") for name in ("first", "second"))
    with suspensions(first) as changes:
        submit(first, "--queue-priority", low, epochs=15, nodes="1")
        until(partial(has_trained, first, steps=30))
        submit(second, "--queue-priority", high, epochs=4, nodes="1")
        until_status("second", namespace, lambda state: state["phase"] == "Succeeded")
        until(partial(has_trained, first, generation=2))
        does(first, "suspend")
        until(lambda: not first.pods())
        time.sleep(10)  # what is drained for longer than the comparison allows
        with all_recover(first):
            does(first, "resume")
        assert_spent(first, changes)
        first.wait()
        until_status("first", namespace, lambda state: state["phase"] == "Succeeded")
        assert_spent(first, changes)


@contextmanager
def suspensions(run: Run) -> Iterator[list[tuple[float, bool]]]:
    """When the job was suspended and resumed, as its object says it to this process."""
    column = "custom-columns=SUSPEND:.spec.suspend"
    only = f"--field-selector=metadata.name={run.name}"
    watch = ["kubectl", "get", KINDS[run.kind][0], "-n", run.namespace, only, "--watch", "--no-headers", "-o", column]
    changes: list[tuple[float, bool]] = []
    with subprocess.Popen(watch, env=SHORT_COMMANDS, stdout=subprocess.PIPE, text=True) as watching:
        threading.Thread(target=_record, args=(watching.stdout, changes), daemon=True).start()
        try:
            yield changes
        finally:
            watching.terminate()


def _record(lines: Iterable[str], changes: list[tuple[float, bool]]) -> None:
    for line in lines:
        if not changes or changes[-1][1] != (line.strip() == "true"):
            changes.append((time.time(), line.strip() == "true"))


def assert_spent(run: Run, changes: Sequence[tuple[float, bool]]) -> None:
    """It waited for its first start and after it was preempted, and was stopped by its user thereafter."""
    read = json.JSONDecoder().raw_decode  # after the object come errors and warnings
    found, _ = read(does(run, "goodput", "-o", "json"))
    spent = {one["name"]: one["seconds"] for one in found["buckets"]}
    assert [suspended for _, suspended in changes] == [True, False] * 3
    times = [time for time, _ in changes]
    waited, preempted, stopped = (times[index + 1] - times[index] for index in (0, 2, 4))
    assert min(preempted, stopped) > 8
    assert spent["queue"] == pytest.approx(waited + preempted, abs=6)
    assert spent["drained"] == pytest.approx(stopped, abs=6)
    assert found["overlapSeconds"] < 0.1
    assert found["unknownSeconds"] < 3, "of three starts; of the pods that are gone their events tell"
    told, _ = read(does(run, "events", "-o", "json"))
    assert [one["what"] for one in told["items"] if one["what"] in {"queued", "admitted"}] == ["queued", "admitted"] * 3


@pytest.fixture
def priorities(namespace: str) -> Iterator[tuple[str, str]]:
    """Two WorkloadPriorityClasses, the lower one first."""
    names = (f"{namespace}-low", f"{namespace}-high")
    for value, name in enumerate(names):
        create("WorkloadPriorityClass", name, value=value, description="of a test")
    yield names
    kubectl("delete", "workloadpriorityclass", *names, "--wait=false")


@pytest.mark.long
def test_two_of_four_nodes_complete_the_training(namespace: str, make_queue: MakeQueue) -> None:
    make_queue(2)
    run = Run(namespace=namespace, name="run", kind="IndexedJob")
    submit(run, nodes="2:4", epochs=8)
    until_status("run", namespace, lambda state: state["worldSize"] == 2)
    spec = live(run)["spec"]
    assert (spec["parallelism"], spec["completions"]) == (2, 2)
    assert_complete_and_exact(run, epochs=8)
    assert {pod["metadata"]["labels"][KINDS[run.kind][2]] for pod in run.pods()} == {"0", "1"}
    assert phase(run) == "Succeeded"
    until(lambda: reserved(namespace) == 0)


@pytest.mark.long
def test_an_admitted_job_grows_and_shrinks_with_its_quota(namespace: str, make_queue: MakeQueue) -> None:
    make_queue(3)
    run = Run(namespace=namespace, name="run", kind="IndexedJob")
    submit(run, nodes="1:3", epochs=LONG)
    until_status("run", namespace, lambda state: state["worldSize"] == 3)
    for nodes in (1, 2, 3):
        with all_recover(run):
            does(run, "scale", "--nodes", str(nodes))
        until_status("run", namespace, partial(has_ranks, nodes))
        until(partial(uses, namespace, nodes))
    does(run, "suspend")
    until(lambda: reserved(namespace) == 0)
    with all_recover(run):
        does(run, "resume")
    with all_recover(run):
        does(run, "restart")


@pytest.mark.long
def test_a_job_takes_the_quota_that_another_one_frees(namespace: str, make_queue: MakeQueue) -> None:
    make_queue(3)
    others = [Run(namespace=namespace, name=name, kind="IndexedJob") for name in ("first", "second")]
    for other in others:
        submit(other, epochs=LONG, nodes="1")
        until(partial(has_trained, other))
    run = Run(namespace=namespace, name="run", kind="IndexedJob")
    submit(run, epochs=LONG, nodes="1:3")
    until_status("run", namespace, partial(has_ranks, 1))
    does(run, "scale", "--nodes", "3")
    until(lambda: "it starts by itself, and the others do not wait for it" in does(run, "why"))
    does(others[0], "cancel")
    before = run.step()
    until(lambda: run.step() > before + 20)
    assert (status("run", namespace)["worldSize"], run.generation()) == (1, 1), "of two nodes none starts alone"
    does(others[1], "cancel")
    until_status("run", namespace, partial(has_ranks, 3))
    until(partial(uses, namespace, 3))


def has_ranks(count: int, state: Object) -> bool:
    return bool(state["worldSize"] == count)


def uses(namespace: str, nodes: int) -> bool:
    """Whether so many nodes of the queue's quota are used."""
    (flavor,) = get("", "clusterqueue", namespace)["status"]["flavorsReservation"]
    return next(int(one["total"]) for one in flavor["resources"] if one["name"] == "pods") == nodes


@pytest.mark.long
def test_kueues_role_for_users_suffices_to_submit_and_watch_but_not_to_stop(
    namespace: str, make_queue: MakeQueue, tmp_path: Path
) -> None:
    make_queue(2)
    kubectl("create", "serviceaccount", "user", "-n", namespace)
    for role in ("kueue-batch-user-role", "edit"):
        account = f"--serviceaccount={namespace}:user"
        kubectl("create", "rolebinding", role, "-n", namespace, f"--clusterrole={role}", account)
    token = kubectl("create", "token", "user", "-n", namespace).strip()
    user = partial(kitctl, kubeconfig=kubeconfig_with({"token": token}, namespace, tmp_path))
    for name in ("first", "second"):
        user("submit", *job(name, namespace, "--queue", "team", "--nodes", "2", *IDLE))
    until(lambda: "waits in queue team, position 1: couldn't assign" in user("status", "second"))
    for command in ("suspend", "cancel", "restart"):
        assert "you may not change its Workload" in user(command, "first", exit_code=1)
    assert reserved(namespace) == 1
    user("delete", "first")
    until_status("second", namespace, lambda state: state["queue"]["state"] == "Admitted")


@pytest.mark.long
def test_a_topology_keeps_the_nodes_in_one_rack_and_neighbours_together(
    namespace: str, make_queue: MakeQueue, rack: str, tmp_path: Path
) -> None:
    create("Topology", namespace, spec={"levels": [{"nodeLabel": rack}, {"nodeLabel": "kubernetes.io/hostname"}]})
    make_queue(4, flavor={"topologyName": namespace, "nodeLabels": {"kubernetes.io/os": "linux"}})
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(json.dumps({"annotations": {"kueue.x-k8s.io/podset-required-topology": rack}}))
    run = Run(namespace=namespace, name="run", kind="IndexedJob")
    submit(run, "--pod-overlay", str(overlay), "--set", "scheduling.spread=none", nodes="4")
    assert_complete_and_exact(run, epochs=1)
    hosts = {int(pod["metadata"]["labels"][KINDS[run.kind][2]]): pod["spec"]["nodeName"] for pod in run.pods()}
    assert len({get("", "node", host)["metadata"]["labels"][rack] for host in hosts.values()}) == 1
    in_order = [hosts[index] for index in range(4)]
    assert len([*groupby(in_order)]) == len({*in_order}), f"a machine has neighbouring nodes: {in_order}"
    kubectl("delete", "topology", namespace, "--wait=false")


@pytest.fixture
def rack(namespace: str) -> Iterator[str]:
    """A label of the workers, of which the last two are in one rack."""
    label = f"kitctl.test/{namespace}"
    names = sorted(one["metadata"]["name"] for one in get("", "nodes")["items"])[1:]
    for number, name in enumerate(names):
        kubectl("label", "node", name, f"{label}={min(number, 1)}")
    yield label
    kubectl("label", "nodes", *names, f"{label}-")
