"""Whose a claim for snapshots is: it is neither taken nor deleted by the mere name of a job."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl import names
from kitctl.errors import ConflictError
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit

CLAIM: dict[str, Any] = {
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
}
OURS = {"labels": {names.LABEL_NAME: names.APP_NAME, names.LABEL_INSTANCE: "run"}}
PVC = "persistentvolumeclaims"


@pytest.fixture(autouse=True)
def _users(server: ApiServer) -> None:
    server.users |= {"alice": User("alice"), "bob": User("bob")}


def test_the_claim_that_a_job_made_is_deleted_with_it_when_asked(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    told = kit("delete", "run", "--snapshots", "-y")
    assert "run: deleted with its snapshots" in told
    assert server.names(PVC) == set()


def test_it_stays_otherwise_and_the_next_job_of_its_maker_takes_it_up(server: ApiServer, kit: Kit) -> None:
    kit.submit("alice")
    assert "its snapshots stay" in kit("delete", "run")
    kit.submit("alice")
    kit("delete", "run", "--snapshots", "-y", token="alice")
    assert server.names(PVC) == set()


@pytest.mark.parametrize("made", [{}, OURS], ids=["of one's own", "as if rendered by kitctl"])
def test_a_claim_that_was_given_stays_even_if_it_is_named_like_one_that_is_made(
    server: ApiServer, kit: Kit, made: dict[str, Any]
) -> None:
    server.put(PVC, "run-snapshots", metadata=made, **CLAIM)
    kit.submit(snapshots={"claim": "run-snapshots"})
    told = kit("delete", "run", "--snapshots", "-y")
    assert server.names(PVC) == {"run-snapshots"}
    assert "claim 'run-snapshots' stays: it was not made by kitctl submit" in told
    assert "kubectl delete pvc -n default run-snapshots" in told


def test_a_claim_of_an_earlier_job_that_is_given_to_a_later_one_stays(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    kit("delete", "run")
    kit.submit(snapshots={"claim": "run-snapshots"})
    assert "was not made for this job" in kit("delete", "run", "--snapshots", "-y")
    assert server.names(PVC) == {"run-snapshots"}


def test_another_user_does_not_get_it_by_the_name_of_the_job(server: ApiServer, kit: Kit) -> None:
    kit.submit("alice")
    kit("delete", "run", token="alice")
    with pytest.raises(ConflictError, match=r"claim 'run-snapshots' keeps another job's snapshots.*alice") as caught:
        kit.submit("bob")
    assert "--resume" in caught.value.fix
    assert server.names("jobs.batch") == set(), "nothing stays"


@pytest.mark.parametrize("checks", [True, False])
def test_a_job_is_not_replaced_by_one_that_may_not_have_its_claim(server: ApiServer, kit: Kit, *, checks: bool) -> None:
    """It would be deleted for nothing."""
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


def test_one_that_a_job_has_taken_up_while_its_earlier_job_was_deleted_stays(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    server.plan("DELETE .*/persistentvolumeclaims/run-snapshots", before=lambda: kit.submit(resume=True))
    told = kit("delete", "run", "--snapshots", "-y", exit_code=2)
    assert "try again: it was being changed" in told
    assert server.names(PVC) == {"run-snapshots"}


def test_without_a_terminal_snapshots_are_deleted_only_with_yes(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    assert "-y" in kit("delete", "run", "--snapshots", exit_code=2)
    assert server.names("jobs.batch") == {"run"}
