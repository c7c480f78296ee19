"""Submit creates all of a job or nothing, with any existing objects, and wherever it is killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from kitctl.api.client import Client
from kitctl.base import names
from kitctl.base.errors import ConflictError
from kitctl.targets.cluster.cluster_target import ClusterTarget
from tests.cluster.commands import IDLE, NOWHERE, job, kitctl, status, survives
from tests.cluster.jobs import KINDS as ALL
from tests.cluster.jobs import often
from tests.cluster.kind.settings import KUBECONFIG
from tests.cluster.kubectl import Object, apply, get, kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]

KINDS: Final = {kind: resource for kind, (resource, _, _) in ALL.items()}
# Every kind that kitctl creates.
RESOURCES: Final = ",".join(
    (
        *KINDS.values(),
        *("serviceaccounts", "roles", "rolebindings", "secrets", "configmaps", "services", "networkpolicies"),
        "persistentvolumeclaims",
    )
)
# For a PyTorchJob only what differs from an Indexed Job.
OPTIONAL: Final = ("reportStatus", "networkPolicy", "rendezvousSecret")
BARE: Final = (*IDLE, *(word for part in OPTIONAL for word in ("--set", f"security.{part}=false")))


@pytest.mark.parametrize("kind", often("IndexedJob", "PyTorchJob"))
def test_a_job_owns_its_objects_except_its_snapshots(namespace: str, kind: str) -> None:
    words = job("run", namespace, "--kind", kind, *NOWHERE)
    kitctl("submit", *words)
    (made,) = jobs(namespace)
    owner = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": "run", "uid": made["metadata"]["uid"]}
    for child in children(namespace):
        owners = child["metadata"].get("ownerReferences", [])
        assert owners == ([] if child["kind"] == "PersistentVolumeClaim" else [owner]), child["kind"]
    assert is_released(made)

    assert kitctl("diff", *words) == ""
    changed = kitctl("diff", *words, "--nodes", "3", exit_code=1)
    assert {"PyTorchJob": "replicas", "TrainJob": "numNodes"}.get(kind, "completions") in changed
    assert kitctl("diff", *words) == "", "a diff changes nothing"
    output = kitctl("submit", *words, exit_code=2)
    assert "'run' already exists" in output
    assert "fix: choose another --name, replace it with --replace" in output

    (claim,) = get(namespace, "pvc")["items"]
    assert "replacing job 'run'" in kitctl("submit", *words, "--replace", "--nodes", "2")
    (replaced,) = jobs(namespace)
    assert replaced["metadata"]["uid"] != made["metadata"]["uid"]
    assert {uid_of_owner(child) for child in children(namespace)} == {replaced["metadata"]["uid"], None}
    assert get(namespace, "pvc")["items"][0]["metadata"]["uid"] == claim["metadata"]["uid"]

    kitctl("delete", "run", "-n", namespace)
    kitctl("submit", *words)  # at once: it waits for the garbage collector
    (again,) = jobs(namespace)
    assert {uid_of_owner(child) for child in children(namespace)} == {again["metadata"]["uid"], None}
    kitctl("delete", "run", "-n", namespace)
    until(lambda: left(namespace) == {"PersistentVolumeClaim/run-snapshots"})
    kitctl("submit", *words)
    kitctl("delete", "run", "-n", namespace, "--snapshots", "-y")
    until(lambda: left(namespace) == set())


def test_another_kind_replaces_a_job_too(namespace: str) -> None:
    kitctl("submit", *job("run", namespace, *IDLE))
    kitctl("submit", *job("run", namespace, *IDLE, "--kind", "PyTorchJob", "--replace"))
    (replaced,) = jobs(namespace)
    assert replaced["kind"] == "PyTorchJob"
    assert {uid_of_owner(child) for child in children(namespace)} == {replaced["metadata"]["uid"]}


def test_a_claim_that_is_being_deleted_is_created_again(namespace: str) -> None:
    words = ("submit", *job("run", namespace, *NOWHERE))
    claim = ("pvc", "run-snapshots", "-n", namespace)
    kitctl(*words)
    kitctl("delete", "run", "-n", namespace)
    old = get(namespace, "pvc", "run-snapshots")["metadata"]["uid"]
    kubectl("patch", *claim, "--type=merge", '--patch={"metadata": {"finalizers": ["kitctl.test/held"]}}')
    kubectl("delete", *claim, "--wait=false")

    def let_go() -> None:
        until(lambda: jobs(namespace))
        kubectl("patch", *claim, "--type=merge", '--patch={"metadata": {"finalizers": null}}')

    helper = threading.Thread(target=let_go)
    helper.start()
    kitctl(*words)
    helper.join()
    assert get(namespace, "pvc", "run-snapshots")["metadata"]["uid"] != old


@pytest.mark.parametrize(
    "kind",
    ["Service", *(pytest.param(one, marks=pytest.mark.wide) for one in ("ConfigMap", "PersistentVolumeClaim", "Job"))],
)
def test_foreign_objects_are_not_touched_and_nothing_is_left(namespace: str, kind: str) -> None:
    theirs = foreign(kind)
    apply(namespace, theirs)
    uid = get(namespace, kind, theirs["metadata"]["name"])["metadata"]["uid"]
    for more in ((), ("--replace",)):
        output = kitctl("submit", *job("run", namespace, *NOWHERE, *more), exit_code=2)
        assert f"{kind} {theirs['metadata']['name']!r} already exists and " in output
        assert "fix: choose another --name" in output
    until(lambda: left(namespace) == set())
    after = get(namespace, kind, theirs["metadata"]["name"], "--show-managed-fields")["metadata"]
    assert after["uid"] == uid
    assert names.FIELD_MANAGER not in {entry["manager"] for entry in after["managedFields"]}


@pytest.mark.parametrize(
    ("kind", "options"), [("IndexedJob", NOWHERE), pytest.param("PyTorchJob", BARE, marks=pytest.mark.long)]
)
def test_a_submit_killed_before_any_request_is_completed_by_the_next(
    namespace: str, kind: str, options: tuple[str, ...]
) -> None:
    """Each time with another name; in the end, all have the same objects as the job that was not killed."""
    for number in itertools.count(1):
        # Without checks: they create nothing, and would double the number of requests.
        words = ("submit", *job(f"run-{number}", namespace, "--kind", kind, "--no-checks", *options))
        if survives(number, *words):
            break
        made = [one for one in jobs(namespace) if one["metadata"]["name"] == f"run-{number}"]
        if made and is_released(made[0]):  # only the output was missing
            assert "already exists" in kitctl(*words, exit_code=2)
        else:
            assert ("was partially submitted; continuing" in kitctl(*words)) is bool(made)
    assert number > 5, "requests were counted"
    groups: dict[str, set[str]] = defaultdict(set)
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in jobs(namespace)}
    ours = f"{names.LABEL_NAME}={names.APP_NAME}"
    for thing in get(namespace, RESOURCES, "-l", f"{ours},{names.LABEL_INSTANCE}")["items"]:
        name = thing["metadata"]["labels"][names.LABEL_INSTANCE]
        groups[name].add(f"{thing['kind']}/{thing['metadata']['name'].removeprefix(name)}")
        assert uid_of_owner(thing) in {uids[name], None}
    assert groups.keys() == {f"run-{one}" for one in range(1, number + 1)}
    assert set(map(frozenset, groups.values())) == {frozenset(groups[f"run-{number}"])}
    assert all(map(is_released, jobs(namespace)))
    (trainer,) = get(namespace, RESOURCES, "-l", f"{ours},!{names.LABEL_INSTANCE}")["items"]
    assert {owner["uid"] for owner in trainer["metadata"]["ownerReferences"]} == {*uids.values()}, (
        "it goes with the last"
    )


@pytest.mark.wide
def test_a_partly_submitted_job_reports_it_and_can_be_deleted(namespace: str) -> None:
    words = ("submit", *job("run", namespace, *NOWHERE))
    assert not survives(25, *words)
    assert 1 < len(left(namespace)) < 8
    cut = status("run", namespace)
    assert (cut["phase"], cut["reason"]) == ("Suspended", "submit was interrupted: run it again, or kitctl delete")
    assert "already exists" in kitctl(*words, "--nodes", "2", exit_code=2), "another job was created"
    kitctl("delete", "run", "-n", namespace)
    until(lambda: left(namespace) <= {"PersistentVolumeClaim/run-snapshots"})


def test_an_object_recreated_after_it_was_read_is_not_touched(namespace: str) -> None:
    target = Client(target="cluster", kubeconfig=KUBECONFIG).target
    assert isinstance(target, ClusterTarget)
    kitctl("submit", *job("run", namespace, *IDLE))
    for kind in ("Job.batch", "ConfigMap"):
        name = "run" if kind == "Job.batch" else "run-status"
        found = target.api.get(kind, namespace, name)
        earlier = found | {"metadata": found["metadata"] | {"uid": "00000000-0000-0000-0000-000000000000"}}
        for change in (partial(target.api.patch, earlier, {}), partial(target.api.delete, earlier)):
            with pytest.raises(ConflictError) as caught:
                change()
            assert caught.value.fix == "it was deleted and created again meanwhile: check it first"
        with pytest.raises(ConflictError):
            target.api.patch(found, {}, version="1")
        assert target.api.get(kind, namespace, name)["metadata"]["uid"] == found["metadata"]["uid"]


def test_of_two_concurrent_submits_one_gets_a_conflict(namespace: str) -> None:
    """In separate processes, repeatedly: which one is first is random."""
    words = [("submit", *job("run", namespace, *IDLE, "--env", f"WHO={who}", "--no-checks")) for who in "ab"]
    with ThreadPoolExecutor(2) as both:
        for _ in range(3):
            codes = sorted(both.map(exit_code, words))
            assert codes == [0, 2]
            (made,) = jobs(namespace)
            assert is_released(made)
            assert {uid_of_owner(child) for child in children(namespace)} == {made["metadata"]["uid"]}
            kitctl("delete", "run", "-n", namespace)


def test_the_same_name_in_two_namespaces(namespace: str) -> None:
    other = f"{namespace}-b"
    kubectl("create", "namespace", other)
    try:
        for place, nodes in ((namespace, "1"), (other, "2")):
            kitctl("submit", *job("run", place, *IDLE, "--nodes", nodes))
        assert [len(status("run", place)["nodes"]) for place in (namespace, other)] == [1, 2]
        kitctl("delete", "run", "-n", other)
        assert status("run", namespace)["phase"] == "Pending"
        kitctl("status", "run", "-n", other, exit_code=102)
    finally:
        kubectl("delete", "namespace", other, "--wait=false")


def exit_code(words: tuple[str, ...]) -> int:
    """The exit code of a command that runs in its own process."""
    command = [sys.executable, "-m", "kitctl", words[0], "--kubeconfig", str(KUBECONFIG), *words[1:]]
    return subprocess.run(command, check=False, capture_output=True).returncode


def jobs(namespace: str) -> list[Object]:
    """Those that nothing else has made."""
    found: list[Object] = get(namespace, ",".join(KINDS.values()))["items"]
    return [thing for thing in found if not uid_of_owner(thing)]


def children(namespace: str) -> list[Object]:
    """Everything except jobs and what the operator and the cluster create."""
    found = get(namespace, RESOURCES, "-l", f"{names.LABEL_NAME}={names.APP_NAME}")["items"]
    return [thing for thing in found if thing["kind"] not in {"Job", "JobSet", "TrainJob", "PyTorchJob"}]


def left(namespace: str) -> set[str]:
    """All existing objects of kitctl."""
    found = get(namespace, RESOURCES, "-l", f"{names.LABEL_NAME}={names.APP_NAME}")["items"]
    return {f"{thing['kind']}/{thing['metadata']['name']}" for thing in found}


def is_released(thing: Object) -> bool:
    holder = thing["spec"].get("runPolicy", thing["spec"])
    return thing["metadata"]["annotations"].get(names.ANNOTATION_RELEASED) == "true" and not holder.get("suspend")


def uid_of_owner(thing: Object) -> str | None:
    """None if it has no owner."""
    owners = thing["metadata"].get("ownerReferences", [])
    return str(owners[0]["uid"]) if owners else None


def foreign(kind: str) -> Object:
    """An object that conflicts with a job and is not kitctl's."""
    image = {"name": "main", "image": "none"}
    pod = {"restartPolicy": "Never", "containers": [image]}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    return {
        "Service": {"apiVersion": "v1", "metadata": {"name": "run"}, "spec": {"ports": [{"port": 1}]}},
        "ConfigMap": {"apiVersion": "v1", "metadata": {"name": "run-status"}, "data": {"theirs": "data"}},
        "PersistentVolumeClaim": {"apiVersion": "v1", "metadata": {"name": "run-snapshots"}, "spec": claim},
        "Job": {
            "apiVersion": "batch/v1",
            "metadata": {"name": "run"},
            "spec": {"suspend": True, "template": {"spec": pod}},
        },
    }[kind] | {"kind": kind}
