"""Ownership of snapshot claims: a job with the same name neither uses nor deletes the claim of another user."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base import names
from kitctl.base.errors import ConflictError
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

CLAIM: dict[str, Any] = {
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
}
OURS = {"labels": {names.LABEL_NAME: names.APP_NAME, names.LABEL_INSTANCE: "run"}}
PVC = "persistentvolumeclaims"


@pytest.fixture(autouse=True)
def _users(server: ApiServer) -> None:
    server.users |= {"alice": User("alice"), "bob": User("bob")}


def test_the_claim_that_a_job_created_is_deleted_with_it_on_request(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    output = kit("delete", "run", "--snapshots", "-y")
    assert "run: deleted with its snapshots" in output
    assert server.names(PVC) == set()


def test_otherwise_it_is_kept_and_the_same_users_next_job_uses_it(server: ApiServer, kit: Kit) -> None:
    kit.submit("alice")
    assert "snapshots stay, if it has any" in kit("delete", "run")
    kit.submit("alice")
    kit("delete", "run", "--snapshots", "-y", token="alice")
    assert server.names(PVC) == set()


@pytest.mark.parametrize("made", [{}, OURS], ids=["of one's own", "as if rendered by kitctl"])
def test_a_given_claim_is_kept_even_if_it_has_the_name_of_a_created_one(
    server: ApiServer, kit: Kit, made: dict[str, Any]
) -> None:
    server.put(PVC, "run-snapshots", metadata=made, **CLAIM)
    kit.submit(snapshots={"claim": "run-snapshots"})
    output = kit("delete", "run", "--snapshots", "-y")
    assert server.names(PVC) == {"run-snapshots"}
    assert "claim 'run-snapshots' stays: it was not made by kitctl submit" in output
    assert "kubectl delete pvc -n default run-snapshots" in output


def test_an_earlier_jobs_claim_that_is_given_to_a_later_one_is_kept(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    kit("delete", "run")
    kit.submit(snapshots={"claim": "run-snapshots"})
    assert "was not made for this job" in kit("delete", "run", "--snapshots", "-y")
    assert server.names(PVC) == {"run-snapshots"}


def test_another_users_job_of_the_same_name_does_not_get_the_claim(server: ApiServer, kit: Kit) -> None:
    kit.submit("alice")
    kit("delete", "run", token="alice")
    with pytest.raises(ConflictError, match=r"claim 'run-snapshots' keeps another job's snapshots.*alice") as caught:
        kit.submit("bob")
    assert "--resume" in caught.value.fix
    assert server.names("jobs.batch") == set(), "no object is left"


@pytest.mark.parametrize("checks", [True, False])
def test_a_job_is_not_replaced_by_one_that_may_not_use_its_claim(server: ApiServer, kit: Kit, *, checks: bool) -> None:
    """The replaced job would be deleted in vain."""
    kit.submit("alice")
    with pytest.raises(ConflictError, match="keeps another job's snapshots"):
        kit.target("bob").submit(kit.submission(replace=True, checks=checks))
    assert server.names("jobs.batch") == {"run"}


def test_another_user_may_resume_a_claim_but_not_delete_it(server: ApiServer, kit: Kit) -> None:
    kit.submit("alice")
    kit("delete", "run", token="alice")
    kit.submit("bob", resume=True)
    assert "alice created it, and you are bob" in kit("delete", "run", "--snapshots", "-y", token="bob")
    assert server.names(PVC) == {"run-snapshots"}


def test_an_unowned_claim_is_used_only_with_resume(server: ApiServer, kit: Kit) -> None:
    server.put(PVC, "run-snapshots", metadata=OURS, **CLAIM)
    with pytest.raises(ConflictError, match="its creator is not recorded"):
        kit.submit()
    kit.submit(resume=True)


def test_a_claim_that_a_new_job_uses_while_the_old_one_is_deleted_is_kept(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    server.plan("DELETE .*/persistentvolumeclaims/run-snapshots", before=lambda: kit.submit(resume=True))
    output = kit("delete", "run", "--snapshots", "-y", exit_code=2)
    assert "try again: it was being changed" in output
    assert server.names(PVC) == {"run-snapshots"}


def test_without_a_terminal_snapshots_are_deleted_only_with_yes(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    assert "-y" in kit("delete", "run", "--snapshots", exit_code=2)
    assert server.names("jobs.batch") == {"run"}


def test_a_claim_that_something_else_owns_is_not_taken(server: ApiServer, kit: Kit) -> None:
    """Whatever owns it, such as a job of the chart, takes the snapshots with it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": "other"}
    marks = {"annotations": {names.ANNOTATION_USER: "alice"}, "ownerReferences": [owner]}
    server.put(PVC, "run-snapshots", metadata=OURS | marks, **CLAIM)
    for resume in (False, True):
        with pytest.raises(ConflictError, match="already exists and does not belong to this job"):
            kit.submit("alice", resume=resume)
    assert server.names("jobs.batch") == set()
    found = server.store.get(Key(PVC, "default", "run-snapshots"))
    assert names.ANNOTATION_JOB_UID not in found["metadata"]["annotations"]


def test_a_claim_that_something_else_has_come_to_own_is_not_deleted(server: ApiServer, kit: Kit) -> None:
    """Its owner decides, even if it was made for this job."""
    kit.submit()
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "1"}
    server.store.objects[Key(PVC, "default", "run-snapshots")]["metadata"]["ownerReferences"] = [owner]
    assert "claim 'run-snapshots' stays" in kit("delete", "run", "--snapshots", "-y")
    assert server.names(PVC) == {"run-snapshots"}


def test_what_a_deleted_job_has_left_is_deleted_later(server: ApiServer, kit: Kit) -> None:
    kit.submit("alice")
    kit("delete", "run", token="alice")
    assert "no job 'run'" in kit("delete", "run", token="alice", exit_code=102)
    refused = kit("delete", "run", "--snapshots", "-y", token="bob", exit_code=2)
    assert "claim 'run-snapshots' stays: alice created it, and you are bob" in refused
    assert "kubectl delete pvc -n default run-snapshots" in refused
    assert "run: deleted with its snapshots" in kit("delete", "run", "--snapshots", "-y", token="alice")
    assert server.names(PVC) == set()
    assert "no job 'run'" in kit("delete", "run", "--snapshots", "-y", token="alice", exit_code=102)


def test_what_a_deleted_job_has_left_is_kept_while_another_job_uses_it(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    kit("delete", "run")
    kit.submit(name="heir", snapshots={"claim": "run-snapshots"})
    refused = kit("delete", "run", "--snapshots", "-y", exit_code=2)
    assert "claim 'run-snapshots' stays: job 'heir' uses it" in refused
    assert server.names(PVC) == {"run-snapshots"}


def test_a_claim_of_somebody_elses_making_is_not_what_a_job_has_left(server: ApiServer, kit: Kit) -> None:
    server.put(PVC, "run-snapshots", metadata=OURS, **CLAIM)
    refused = kit("delete", "run", "--snapshots", "-y", exit_code=2)
    assert "claim 'run-snapshots' stays: it was not made by kitctl submit" in refused
    assert server.names(PVC) == {"run-snapshots"}
