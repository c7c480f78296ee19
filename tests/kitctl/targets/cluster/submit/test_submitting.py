"""Submitting to a server with other clients, and with lost responses."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kitctl.base import names
from kitctl.base.errors import ConflictError, KitError, Unavailable
from kitctl.kinds import KINDS
from kitctl.output.view import changes
from kitctl.render import objects
from kitctl.targets import mirrors
from kitctl.targets.cluster.read import existing
from kitctl.targets.cluster.read.lifecycle import annotations_of
from kitjob.names import DEFAULT_IMAGE
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Clock, Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object

JOBS = {"IndexedJob": "jobs.batch", "PyTorchJob": "pytorchjobs"}
CREATES_A_JOB = r"(POST|PATCH) .*/(jobs|pytorchjobs)(/run)?$"


def job(server: ApiServer, kind: str = "IndexedJob") -> Object:
    return server.store.get(Key(JOBS[kind], "default", "run"))


def children(server: ApiServer) -> dict[str, set[str]]:
    """The owner uids of all objects except jobs and claims, by resource and name."""
    return {
        f"{key.resource}/{key.name}": {one["uid"] for one in thing["metadata"].get("ownerReferences", [])}
        for key, thing in server.store.objects.items()
        if key.resource not in {*JOBS.values(), "persistentvolumeclaims", "storageclasses"}
    }


def at_once(*calls: Any) -> list[KitError | None]:
    """The errors of calls that run concurrently."""

    def outcome(call: Any) -> KitError | None:
        try:
            call()
        except KitError as error:
            return error
        return None

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(outcome, calls))


def test_a_user_with_all_rights_gets_no_warnings(kit: Kit) -> None:
    output = kit("submit", "--name", "run").splitlines()
    assert output[0] == "job 'run' submitted"
    assert [line.split()[:2] for line in output[1:]] == [["kitctl", "logs"], ["kitctl", "status"]]


def test_a_mirror_that_cannot_be_used_is_warned_of_first(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object) -> mirrors.Look:
        assert not children(server)
        return mirrors.Look(refused="the bucket does not exist; fix: create it")

    monkeypatch.setattr(mirrors, "look", look)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    submit = ("submit", "--name", "run", "--set", "snapshots.mirror=s3://nowhere/run")
    assert "the bucket does not exist; fix: create it (as seen from this machine, with your shell's" in kit(*submit)
    monkeypatch.setattr(mirrors, "look", pytest.fail)
    kit(*submit, "--replace", "--no-checks")


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("second", [{"args": ["other"]}, {}], ids=["another job", "the very same"])
def test_two_submits_at_once_have_one_winner(server: ApiServer, kit: Kit, kind: str, second: dict[str, Any]) -> None:
    server.users |= {"alice": User("alice"), "bob": User("bob")}
    barrier = threading.Barrier(2)  # both have checked, and found no job
    server.plan(CREATES_A_JOB, times=2, before=lambda: barrier.wait(30))
    calls = [
        lambda: kit.submit("alice", kind=kind),
        lambda: kit.submit("bob", kind=kind, **second),
    ]
    outcomes = at_once(*calls)
    (lost,) = [error for error in outcomes if error]
    assert isinstance(lost, ConflictError)
    assert "'run' already exists" in lost.message
    winner = ("alice", "bob")[outcomes.index(None)]
    made = job(server, kind)
    assert annotations_of(made)[names.ANNOTATION_USER] == winner
    assert annotations_of(made)[names.ANNOTATION_RELEASED] == "true"
    assert set(map(frozenset, children(server).values())) == {frozenset({made["metadata"]["uid"]})}
    wanted = kit.submission(kind=kind, image=DEFAULT_IMAGE, **({} if winner == "alice" else second)).spec
    assert annotations_of(made)[names.ANNOTATION_SPEC_HASH] == wanted.digest({})


def test_a_concurrent_submit_takes_over_or_fails(server: ApiServer, kit: Kit) -> None:
    """The first one is delayed before it releases the job; meanwhile the second one continues that submit."""
    server.plan("PATCH .*/jobs/run$", before=kit.submit)
    with pytest.raises(ConflictError, match="submitted by another client in the meantime"):
        kit.submit()
    assert annotations_of(job(server))[names.ANNOTATION_RELEASED] == "true", "the job is released"


def cut_short(server: ApiServer, kit: Kit, token: str) -> str:
    """Submit, and lose the connection before the job is released; returns the job's uid."""
    server.plan("(PATCH|DELETE) .*/jobs/run$", times=99, lost="before")
    target = kit.target(token)
    target.retry_seconds = 0
    with pytest.raises(Unavailable):
        target.submit(kit.submission())
    server.faults.clear()
    assert annotations_of(job(server))[names.ANNOTATION_RELEASED] == "false"
    return str(job(server)["metadata"]["uid"])


def test_a_partial_submit_by_the_same_user_is_continued(server: ApiServer, kit: Kit) -> None:
    uid = cut_short(server, kit, "token")
    assert "was partially submitted; continuing" in kit("submit", "--name", "run")
    assert job(server)["metadata"]["uid"] == uid
    assert annotations_of(job(server))[names.ANNOTATION_RELEASED] == "true"


def test_a_partial_submit_by_another_user_is_a_conflict(server: ApiServer, kit: Kit) -> None:
    server.users |= {"alice": User("alice"), "bob": User("bob")}
    uid = cut_short(server, kit, "alice")
    with pytest.raises(ConflictError, match="already exists"):
        kit.submit("bob")
    kit.submit("alice")
    assert job(server)["metadata"]["uid"] == uid


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("lost", ["before", "halfway", "after"])
def test_lost_responses_do_not_change_the_result(server: ApiServer, kit: Kit, kind: str, lost: str) -> None:
    for path in ("jobs", "services", "configmaps", "roles", "persistentvolumeclaims", "jobs/run"):
        server.plan(f"(POST|PATCH) .*/(pytorch)?{path}$", lost=lost)
    kit.submit(kind=kind)
    made = job(server, kind)
    assert annotations_of(made)[names.ANNOTATION_RELEASED] == "true"
    assert set(map(frozenset, children(server).values())) == {frozenset({made["metadata"]["uid"]})}
    kit("delete", "run", "--snapshots", "-y")
    assert set(server.store.objects) == {Key("storageclasses", "", "shared")}


def test_a_job_that_was_recreated_in_between_is_not_changed(server: ApiServer, kit: Kit) -> None:
    """Each command reads the job; before its write, the job is replaced by another one of that name."""
    for command, request in (
        ("delete", "DELETE .*/jobs/run"),
        ("cancel", "PATCH .*/jobs/run"),
        ("suspend", "PATCH .*/jobs/run"),
    ):
        kit.submit()
        first = job(server)["metadata"]["uid"]

        def again() -> None:
            server.store.remove(Key("jobs.batch", "default", "run"))
            kit.submit()

        server.plan(request, before=again)
        output = kit(command, "run", exit_code=2)
        assert "it was deleted and created again meanwhile" in output, command
        after = job(server)
        assert after["metadata"]["uid"] != first
        assert not after["spec"].get("suspend"), command
        server.store.remove(Key("jobs.batch", "default", "run"))


def test_two_deletes_at_once_both_succeed(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    barrier = threading.Barrier(2)
    server.plan("DELETE .*/jobs/run", times=2, before=lambda: barrier.wait(30))
    assert at_once(*[lambda: kit.target().delete("default", "run", snapshots=False, outputs=False)] * 2) == [None, None]


def test_two_replacements_at_once(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    barrier = threading.Barrier(2)
    server.plan(r"(POST|PATCH) .*/jobs(/run)?$", times=2, before=lambda: barrier.wait(30))
    outcomes = at_once(*[lambda: kit.submit(replace=True)] * 2)
    assert sorted(map(type, outcomes), key=str) == sorted([type(None), ConflictError], key=str)


def test_objects_created_by_others_during_a_submit_stay(server: ApiServer, kit: Kit) -> None:
    theirs = {"metadata": {"name": "run"}, "spec": {"ports": [{"port": 1}]}}
    key = Key("services", "default", "run")
    server.plan(r"(POST|PATCH) .*/services(/run)?$", before=lambda: server.store.create(key, theirs))
    with pytest.raises(ConflictError, match="Service 'run' already exists and does not belong to this job"):
        kit.submit()
    assert server.store.get(key)["spec"] == theirs["spec"]
    assert server.names("jobs.batch") == set()


def test_a_child_that_is_refused_after_a_take_over_leaves_the_job_to_the_next_call(server: ApiServer, kit: Kit) -> None:
    """The earlier call may still run, and release it."""
    uid = cut_short(server, kit, "token")
    server.store.remove(Key("services", "default", "run"))
    server.plan("POST .*/services$", answer=(422, {"kind": "Status", "message": "no ports are left"}))
    with pytest.raises(KitError, match="no ports are left"):
        kit.submit()
    assert job(server)["metadata"]["uid"] == uid
    kit.submit()
    assert job(server)["metadata"]["uid"] == uid
    assert annotations_of(job(server))[names.ANNOTATION_RELEASED] == "true"


def test_whichever_child_is_refused_nothing_stays(server: ApiServer, kit: Kit) -> None:
    before = set(server.store.objects)
    kit.submit()
    made = [one.path for one in server.requests if one.method == "POST" and "dryRun" not in one.query]
    kit("delete", "run", "--snapshots", "-y")
    refused = [path for path in dict.fromkeys(made) if not path.endswith(("/jobs", "reviews"))]
    assert {path.rpartition("/")[2] for path in refused} >= {"services", "roles", "persistentvolumeclaims"}
    for path in refused:
        server.plan(f"POST {path}$", answer=(422, {"kind": "Status", "message": "not allowed here"}))
        with pytest.raises(KitError, match="not allowed here"):
            kit.submit()
        assert set(server.store.objects) == before, path


def test_a_replacement_waits_for_pods_as_long_as_they_may_take_to_end(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.submit(policy={"gracePeriod": "10m"})
    first = job(server)["metadata"]["uid"]
    server.store.objects[Key("jobs.batch", "default", "run")]["metadata"]["finalizers"] = ["foregroundDeletion"]

    def end(now: float) -> None:
        if now == 600.0:
            server.store.remove(Key("jobs.batch", "default", "run"))

    monkeypatch.setattr(existing, "time", Clock(step=60.0, on_sleep=end))
    kit.submit(replace=True)
    assert job(server)["metadata"]["uid"] != first


def test_a_job_that_is_submitted_again_has_a_run_id_of_its_own(server: ApiServer, kit: Kit) -> None:
    """Agents of a PyTorchJob meet by it, and take only the snapshots of their run without being asked."""
    found = []
    for _ in range(2):
        kit.submit(kind="PyTorchJob")
        found.append(KINDS["PyTorchJob"].run_id(job(server, "PyTorchJob")))
        kit("delete", "run", "--snapshots", "-y")
    assert all(found)
    assert len(set(found)) == 2


def test_what_a_controller_writes_during_a_diff_is_no_change(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    claim = Key("persistentvolumeclaims", "default", "run-snapshots")
    bound = {"spec": {"volumeName": "pvc-1"}}
    fault = server.plan(
        r"PATCH .*/persistentvolumeclaims/", before=lambda: server.store.patch(claim, bound, apply=False)
    )
    found = kit.target().preview(kit.submission())
    assert [line for one in found for line in changes.lines(one.before, one.after)] == []
    assert fault.times == 0


def test_a_job_that_was_applied_from_a_manifest_has_not_changed_if_its_spec_has_not(kit: Kit) -> None:
    given = kit.submission()
    for one in objects.manifests(given.spec, given.sources, standalone=True, run=""):
        kit.target().api.create(one)
    found = kit.target().preview(given)
    assert [line for one in found for line in changes.lines(one.before, one.after)] == []


def test_a_diff_of_pods_has_what_changes_and_not_what_the_server_adds(server: ApiServer, kit: Kit) -> None:
    kit.submit()

    def default(resource: str, thing: Object) -> None:
        if resource == "jobs.batch":
            thing["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
            for volume in thing["spec"]["template"]["spec"]["volumes"]:
                volume["defaulted"] = True

    default("jobs.batch", server.store.objects[Key("jobs.batch", "default", "run")])
    server.store.admission.append(default)
    refusal = 'Job.batch "run" is invalid: spec.template: Invalid value: {"labels":{"a":"}: "}}: field is immutable'
    status = {"kind": "Status", "message": refusal, "reason": "Invalid"}
    server.plan(r"PATCH .*/jobs/run", times=100, answer=(422, status))
    *_, job = kit.target().preview(kit.submission(env={"EPOCHS": "81"}))
    lines = [line for line in changes.lines(job.before, job.after) if line[0] in "+-" and line[1] not in "+-"]
    assert [line.strip("+- \n") for line in lines] == ['name: "EPOCHS"', 'value: "81"']
    assert job.refusal == 'Job.batch: Job.batch "run" is invalid: spec.template: field is immutable'


def test_a_diff_of_an_object_that_changes_all_the_time_ends(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    key, counts = Key("services", "default", "run"), itertools.count()
    server.plan(
        r"PATCH .*/services/",
        times=100,
        before=lambda: server.store.patch(key, {"status": {"seen": next(counts)}}, apply=False),
    )
    assert kit.target().preview(kit.submission())
    assert next(counts) < 20
