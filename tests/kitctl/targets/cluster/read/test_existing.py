"""Objects that change, appear or vanish while kitctl creates, adopts or waits for them."""

from __future__ import annotations

import pytest

from kitctl.base import names
from kitctl.base.errors import ConflictError, TargetError
from kitctl.targets.cluster.read import existing
from kitctl.targets.cluster.read.lifecycle import annotations_of
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object, Refused

JOB = Key("jobs.batch", "default", "run")
CLAIM = Key("persistentvolumeclaims", "default", "run-snapshots")


def job(server: ApiServer) -> Object:
    return server.store.get(JOB)


@pytest.mark.parametrize("changes", [1, 3])
def test_a_status_update_by_a_controller_is_no_conflict(server: ApiServer, kit: Kit, changes: int) -> None:
    for number in range(changes):
        change = {"status": {"observed": number}}
        server.plan("PATCH .*/jobs/run$", before=lambda change=change: server.store.patch(JOB, change, apply=False))
    kit.submit()
    assert annotations_of(job(server))[names.ANNOTATION_RELEASED] == "true"


def test_a_job_that_changes_all_the_time_is_given_up(server: ApiServer, kit: Kit) -> None:
    def change() -> None:
        server.store.patch(JOB, {"status": {"observed": True}}, apply=False)

    server.plan("PATCH .*/jobs/run$", times=99, before=change)
    with pytest.raises(ConflictError):
        kit.submit()
    assert [str(one) for one in server.requests].count(f"PATCH {path()}") == existing.TRIES


def path() -> str:
    return "/apis/batch/v1/namespaces/default/jobs/run"


def test_a_job_that_is_deleted_before_its_release(server: ApiServer, kit: Kit) -> None:
    server.plan("PATCH .*/jobs/run$", before=lambda: server.store.remove(JOB))
    with pytest.raises(ConflictError, match="was deleted or submitted by another client in the meantime"):
        kit.submit()
    assert server.names("services") == set(), "its other objects are deleted with it"


def test_a_claim_that_is_being_deleted_is_awaited_and_created_again(server: ApiServer, kit: Kit) -> None:
    server.put(CLAIM.resource, CLAIM.name, metadata={"finalizers": ["pvc-protection"]}, spec={"accessModes": []})
    old = server.store.delete(CLAIM, {})["metadata"]["uid"]
    server.plan("GET .*/run-snapshots$", times=4)  # read before, and while it is terminating
    server.plan("GET .*/run-snapshots$", before=lambda: server.store.remove(CLAIM))
    kit.submit(nodes=1, snapshots={"accessMode": "ReadWriteMany"})
    assert server.store.get(CLAIM)["metadata"]["uid"] != old


def test_the_children_of_a_job_that_is_gone_are_waited_for(server: ApiServer, kit: Kit) -> None:
    """The garbage collector leaves them for a moment."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "gone"}
    labels = {names.LABEL_NAME: names.APP_NAME}
    key = Key("services", "default", "run")
    server.put(*key[::2], metadata={"labels": labels, "ownerReferences": [owner]}, spec={})
    server.plan("GET .*/services/run$", times=2)
    server.plan("GET .*/services/run$", before=lambda: server.store.remove(key))
    kit.submit()
    (owned,) = server.store.get(key)["metadata"]["ownerReferences"]
    assert owned["uid"] == job(server)["metadata"]["uid"]


def test_a_new_object_of_the_same_name_is_not_waited_for(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    first = job(server)
    server.store.remove(JOB)
    kit.submit()
    existing.wait_deleted(kit.target().api, first, seconds=0.0)
    with pytest.raises(TargetError, match="still exists after 0 s"):
        existing.wait_deleted(kit.target().api, job(server), seconds=0.0)


def test_who_keeps_an_object_is_told_while_it_is_waited_for(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "HELD_SECONDS", 0.0)
    server.put(CLAIM.resource, CLAIM.name, metadata={"finalizers": ["example.com/hold"]}, spec={"accessModes": []})
    found = server.store.delete(CLAIM, {}) | {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    told: list[str] = []
    api = kit.target().api
    monkeypatch.setattr(api, "warn", told.append)
    with pytest.raises(TargetError, match=r"its finalizer example\.com/hold keeps it") as caught:
        existing.wait_deleted(api, found, seconds=0.6)
    assert "kubectl patch PersistentVolumeClaim -n default run-snapshots --type=merge" in caught.value.fix
    (once,) = told
    assert "is kept by its finalizer example.com/hold" in once


def test_a_pod_that_keeps_a_job_is_named_with_its_finalizer(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    server.store.objects[JOB]["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    labels = {
        names.LABEL_NAME: names.APP_NAME,
        names.LABEL_COMPONENT: "trainer",
        names.LABEL_INSTANCE: "run",
    }
    where = {"labels": labels, "finalizers": ["sre.io/hold"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    server.put("pods", "run-0-x", metadata=where, spec={}, status={"phase": "Failed"})
    with pytest.raises(TargetError, match=r"waits for pod 'run-0-x': its finalizer sre\.io/hold keeps it") as caught:
        existing.wait_deleted(kit.target().api, job(server), seconds=0.0)
    assert "kubectl patch Pod -n default run-0-x --type=merge" in caught.value.fix


def test_a_request_during_a_quota_update_is_retried(server: ApiServer, kit: Kit) -> None:
    """The quota controller answers concurrent creations with a conflict, although no such object exists."""
    left = [2]

    def plugin(resource: str, thing: Object) -> None:
        if resource == "services" and "ownerReferences" in thing["metadata"] and left[0]:
            left[0] -= 1
            raise Refused(409, 'Operation cannot be fulfilled on resourcequotas "q": has been modified', "Conflict")

    server.store.admission.append(plugin)
    kit.submit()
    assert server.names("services") == {"run"}
