"""Facts derived from the objects of real jobs, and the state that is shown for them."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from kitctl.base import names
from kitctl.kinds import of_object
from kitctl.kinds.pytorch_job import REPLICA_INDEX
from kitctl.output.view.text import job_page
from kitctl.state import phase as state
from kitctl.state.why.explain import explain
from kitctl.targets.cluster.read import job_facts
from tests.kitctl.targets.cluster.recorded import recorded


def at(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def run_id(name: str) -> str:
    job = recorded(name).job
    return of_object(job).run_id(job)


def test_a_job_that_runs() -> None:
    known = recorded("running").facts()
    assert (known.name, known.namespace, known.kind) == ("leaves", "team", "IndexedJob")
    assert (known.node_range, known.desired_nodes, known.suspended, known.result) == ("2", 2, False, None)
    assert known.created == at("2026-11-21T14:19:42Z")
    assert known.snapshots == "claim leaves-snapshots"
    assert [(node.index, node.pod, node.host, node.alive) for node in known.nodes] == [
        (0, "leaves-0-ntnjj", "kitctl-worker", True),
        (1, "leaves-1-g5d6j", "kitctl-worker3", True),
    ]
    assert [node.started for node in known.nodes] == [at("2026-11-21T14:19:57Z"), at("2026-11-21T14:19:58Z")]
    assert [node.attempts for node in known.nodes] == [1, 1]
    page = state.derive(known)
    assert (page.phase, page.world_size) == ("Running", 2)
    assert [node.ranks for node in page.nodes] == [(1,), (0,)]


def test_a_pod_that_is_being_deleted_is_not_alive() -> None:
    known = recorded("leaving").facts(now=at("2026-11-21T14:20:51Z"))
    assert [(node.alive, node.note) for node in known.nodes] == [(True, ""), (False, "is being deleted")]
    page = state.derive(known)
    assert (page.phase, page.reason) == ("Recovering", "is being deleted")


def test_pods_that_are_deleted_with_their_job_explain_nothing() -> None:
    job, moment = recorded("leaving").job, "2026-11-21T14:20:51Z"
    ends = job | {"metadata": job["metadata"] | {"deletionTimestamp": moment}}
    known = job_facts.from_objects(ends, recorded("leaving").pods, None, target="kind-kitctl", now=at(moment))
    assert (state.derive(known).reason, known.nodes[1].note) == ("the job is being deleted", "")


def test_pods_that_are_deleted_by_a_suspension_explain_nothing() -> None:
    job, moment = recorded("leaving").job, "2026-11-21T14:20:51Z"
    suspended = job | {"spec": job["spec"] | {"suspend": True}}
    known = job_facts.from_objects(suspended, recorded("leaving").pods, None, target="kind-kitctl", now=at(moment))
    assert (known.suspended, known.nodes[1].alive, known.nodes[1].note) == (True, False, "")


def test_only_a_pod_that_has_ended_and_is_being_deleted_loses_its_logs() -> None:
    staying, leaving = recorded("leaving").pods
    ended = recorded("failed-pytorchjob").pods[1]
    assert not any(map(job_facts.loses_logs, (staying, leaving, ended)))
    assert job_facts.loses_logs(leaving | {"status": ended["status"]})


def test_a_failed_job_shows_the_agents_reason() -> None:
    known = recorded("failed-pytorchjob").facts()
    assert (known.kind, known.node_range, known.result) == ("PyTorchJob", "2", "Failed")
    assert known.ended == at("2026-11-21T14:13:39Z")
    assert known.failure is not None
    assert (known.failure.rank, known.failure.node) == (1, 1)
    assert known.failure.error == "ValueError: failing at step 1, as --fail-at asked"
    assert "in observe" in known.failure.traceback
    assert [(node.index, node.exit_code) for node in known.nodes] == [(0, None), (1, 78)]
    assert state.derive(known).nodes[1].state == "Failed"


def test_the_earliest_of_several_failures_counts() -> None:
    known = recorded("failed-pytorchjob")
    other = json.loads(json.dumps(known.pods[1]).replace("1795270403", "1795270402").replace("rank 1", "rank 0"))
    other["metadata"]["labels"][REPLICA_INDEX] = "0"
    failure = known._replace(pods=[other, known.pods[1]]).facts().failure
    assert failure is not None
    assert failure.reason.startswith("rank 0 failed")


def test_a_failed_job_without_a_report_shows_the_controllers_reason() -> None:
    failure = recorded("failed-pytorchjob")._replace(pods=[]).facts().failure
    assert failure is not None
    assert failure.reason == 'PyTorchJobFailed: job "fails" is failing because "Worker" replica(s) failed.'


@pytest.mark.parametrize(
    ("policy", "resumed_at", "cause"),
    [
        ("PodFailurePolicy", 1.0, "rank 3: ValueError: no such shard"),
        ("PodFailurePolicy", 10.0, "PodFailurePolicy: exit code 78"),  # they had recovered from it
        ("DeadlineExceeded", 1.0, "DeadlineExceeded: exit code 78"),
    ],
)
def test_once_the_pods_are_gone_the_report_has_the_cause(policy: str, resumed_at: float, cause: str) -> None:
    known = recorded("failed-pytorchjob")._replace(pods=[])
    past = {"time": 9.0, "node": 1, "rank": 3, "cause": "ValueError: no such shard"}
    report = {"failures": [past], "progress": {"resumedAt": resumed_at}}
    (failed,) = (one for one in known.job["status"]["conditions"] if one["type"] == "Failed")
    failed |= {"reason": policy, "message": "exit code 78"}
    job = state.derive(known._replace(config_map={"data": {"report": json.dumps(report)}}).facts())
    assert explain(job, 10.0).cause == cause
    page = job_page(job, 10.0)
    assert f"Why         {cause}" in page or f"Why        {cause}" in page
    if cause.startswith("rank"):
        assert "node 1: PodFailurePolicy: exit code 78" in page[1]


def test_the_last_pods_end_is_shown_after_too_many_losses() -> None:
    known = recorded("failed-pytorchjob")
    first, second = (json.loads(json.dumps(known.pods[1])) for _ in range(2))
    ended = {"exitCode": 137, "startedAt": "2026-11-21T14:00:00Z"}
    for pod, minute in ((first, 1), (second, 2)):
        pod["metadata"]["creationTimestamp"] = f"2026-11-21T14:0{minute}:00Z"
        state = {"terminated": ended | {"reason": "OOMKilled", "finishedAt": f"2026-11-21T14:0{minute}:30Z"}}
        pod["status"]["containerStatuses"][0]["state"] = state
    first["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "Error"
    failure = known._replace(pods=[second, first]).facts().failure
    assert failure is not None
    assert failure.reason.startswith("PyTorchJobFailed: ")
    assert "; the last, node 1: OOMKilled (exit code 137" in failure.reason
    assert "resources.limits.memory" in failure.fix
    running = {"running": {"startedAt": "2026-11-21T14:03:00Z"}}
    third = json.loads(json.dumps(second))
    third["metadata"]["creationTimestamp"] = "2026-11-21T14:03:00Z"
    third["status"]["containerStatuses"][0]["state"] = running
    node = known._replace(pods=[first, third, second]).facts().nodes[1]
    assert node.before.startswith("OOMKilled (exit code 137")


def test_a_job_without_pods_still_lists_its_nodes() -> None:
    known = recorded("quota").facts()
    assert [(node.index, node.pod, node.attempts) for node in known.nodes] == [(0, "quota-0", 0), (1, "quota-1", 0)]
    assert 'pods "quota-0-' in known.note
    assert "exceeded quota: small" in state.derive(known).reason


@pytest.mark.parametrize(
    ("name", "attempts", "reason"),
    [
        ("too-many-gpus", [0, 0], "Unschedulable: 0/4 nodes are available: "),
        ("no-image", [0], 'ErrImagePull: failed to pull and unpack image "no/such:image"'),
    ],
)
def test_pods_that_cannot_start_show_the_reason(name: str, attempts: list[int], reason: str) -> None:
    known = recorded(name).facts()
    assert [node.attempts for node in known.nodes] == attempts
    page = state.derive(known)
    assert page.phase == "Pending"
    assert reason in page.reason


def test_the_youngest_pod_determines_a_nodes_state() -> None:
    known = recorded("running")
    dead = json.loads(json.dumps(known.pods[0]))
    dead["metadata"] |= {"name": "leaves-0-first", "creationTimestamp": "2026-11-21T14:00:00Z"}
    for pods in ([dead, *known.pods], [*known.pods, dead]):
        node = known._replace(pods=pods).facts().nodes[0]
        assert (node.pod, node.attempts, node.alive) == ("leaves-0-ntnjj", 2, True)


def test_a_cancelled_job_has_ended_when_it_was_cancelled() -> None:
    known = recorded("failed-pytorchjob")
    known.job["metadata"]["annotations"][names.ANNOTATION_CANCELLED] = "2026-11-21T15:00:00+00:00"
    found = known.facts()
    assert (found.result, found.ended, found.failure) == ("Cancelled", at("2026-11-21T15:00:00Z"), None)


def test_the_run_id_is_read_from_the_job() -> None:
    assert run_id("failed-pytorchjob") == "2df9ac6b"
    assert run_id("running") == ""
    assert job_facts.grace_seconds(recorded("running").job) == 60.0
