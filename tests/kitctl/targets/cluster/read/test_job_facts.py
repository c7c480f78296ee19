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
from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.run import RunFacts
from tests.kitctl.targets.cluster.recorded import Object, recorded


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


def test_a_pod_that_keeps_a_job_which_is_being_deleted_is_named() -> None:
    found, moment = recorded("leaving"), "2026-11-21T14:20:51Z"
    ends = found.job | {"metadata": found.job["metadata"] | {"deletionTimestamp": moment}}
    pod = found.pods[1]
    pod["status"] |= {"phase": "Failed"}

    def reason() -> str:
        return state.derive(job_facts.from_objects(ends, found.pods, None, target="kind", now=at(moment))).reason

    assert reason() == "the job is being deleted"
    pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "sre.io/hold"]
    held = f"waits for pod {pod['metadata']['name']}, which its finalizer sre.io/hold keeps"
    assert reason() == f"the job is being deleted, and {held}"
    pod["status"] |= {"phase": "Running"}
    assert reason() == "the job is being deleted", "it still ends by itself"


def test_a_job_whose_config_map_is_gone_may_run_and_says_that_nothing_is_known() -> None:
    found, moment = recorded("running"), at("2026-11-21T14:25:00Z")
    (container,) = found.job["spec"]["template"]["spec"]["containers"]
    told = document.write(JobKeys(), RunFacts(report="configmap:leaves-status"))
    container["env"].append({"name": "KIT_SPEC", "value": told})
    blind = job_facts.from_objects(found.job, found.pods, None, target="kind", now=moment)
    page = state.derive(blind)
    assert page.phase == "Running"
    assert page.reason == "the ConfigMap leaves-status is gone: nothing is known of the job's progress, which may go on"
    assert [node.state for node in page.nodes] == ["Running", "Running"]
    early = job_facts.from_objects(found.job, found.pods, None, target="kind", now=at("2026-11-21T14:20:00Z"))
    assert (early.unreported, early.reports) == ("", True), "it may have been made in this moment"
    empty = job_facts.from_objects(found.job, found.pods, {"data": {}}, target="kind", now=moment)
    assert (empty.unreported, state.derive(empty).phase) == ("", "Starting"), "no rank has started yet"


@pytest.mark.parametrize(
    ("spec", "nodes", "told"),
    [
        ({"parallelism": 1}, "2", True),
        ({"parallelism": 0}, "2", True),
        ({"parallelism": 2}, "2", False),
        ({"parallelism": 1, "suspend": True}, "2", False),
        ({"parallelism": 1, "completions": 1}, "1:2", False),
    ],
)
def test_fewer_nodes_than_the_job_trains_with_halt_it(spec: Object, nodes: str, *, told: bool) -> None:
    found = recorded("running")
    (container,) = found.job["spec"]["template"]["spec"]["containers"]
    container["env"] = [one for one in container["env"] if one["name"] != "PET_NNODES"]
    container["env"].append({"name": "PET_NNODES", "value": nodes})
    job = found.job | {"spec": found.job["spec"] | spec}
    halted = job_facts.from_objects(job, found.pods[:1], None, target="kind", now=0.0).halted
    patch = 'Job.batch {"spec": {"parallelism": 2, "completions": 2}}'
    assert halted == (f"the Job's parallelism is {spec['parallelism']}, of 2 nodes: {patch}" if told else "")


def test_a_job_that_no_controller_has_written_to_says_so() -> None:
    found = recorded("running")
    job = {key: one for key, one in found.job.items() if key != "status"}
    created = at(job["metadata"]["creationTimestamp"])

    def reason(job: Object, pods: list[Object], seconds: float) -> str:
        return state.derive(job_facts.from_objects(job, pods, None, target="kind", now=created + seconds)).reason

    assert reason(job, [], 40) == (
        "Kubernetes' Job controller has not touched the Job for 40 s: it has no status and no pods"
    )
    assert reason(job, [], 20) == ""
    assert reason(found.job, [], 40) == ""
    assert reason(job | {"spec": job["spec"] | {"suspend": True}}, [], 40) == ""
    assert "not touched" not in reason(job, found.pods, 40)


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
