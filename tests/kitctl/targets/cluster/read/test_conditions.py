"""The reason why an object is not running as desired, from its conditions and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from kitctl.base import names
from kitctl.state.facts import QueuePosition
from kitctl.targets.cluster.read import conditions, job_facts
from tests.kitctl.targets.cluster.recorded import recorded


def note(pod: dict[str, Any], now: float = 0.0) -> str:
    return conditions.pod_reason(pod, job_facts.container_status(pod).get("state", {}), now)


def test_a_pod_that_runs_needs_no_note() -> None:
    assert [note(pod) for pod in recorded("running").pods] == ["", ""]


def test_a_failure_that_the_agent_reported_needs_no_note() -> None:
    assert note(recorded("failed-pytorchjob").pods[1]) == ""


def test_the_schedulers_reason() -> None:
    assert "Insufficient nvidia.com/gpu" in note(recorded("too-many-gpus").pods[0])


def test_an_image_that_cannot_be_pulled_has_a_fix() -> None:
    text = note(recorded("no-image").pods[0])
    assert "no/such:image" in text
    assert text.endswith("(check the image's name, and the cluster's right to pull it)")


def test_a_pod_that_stays_after_its_grace_period_is_stuck() -> None:
    pod = recorded("leaving").pods[1]
    over = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
    assert note(pod, now=over + 1) == "is being deleted"
    stuck = note(pod, now=over + 60)
    assert "node kitctl-worker3 is unreachable" in stuck
    assert "kubectl taint node kitctl-worker3 node.kubernetes.io/out-of-service" in stuck


def test_an_ended_pod_that_stays_is_kept_by_its_controller_not_by_its_node() -> None:
    pod = recorded("leaving").pods[1]
    over = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"reason": "Error", "exitCode": 75}}
    assert note(pod, now=over + 60).startswith("has ended, and is replaced once Kubernetes' Job controller notices")


def test_an_ended_pod_that_a_finalizer_keeps_names_it() -> None:
    pod = recorded("leaving").pods[1]
    over = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"reason": "Error", "exitCode": 75}}
    pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "sre.io/hold"]
    assert note(pod, now=over + 60) == "has ended, and is kept by its finalizer sre.io/hold"


def test_a_pod_that_is_preempted_says_so_while_it_ends() -> None:
    pod = recorded("leaving").pods[1]
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    over = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
    assert note(pod, now=over + 1) == "is being deleted: PreemptionByScheduler"


UNBOUND = {
    "metadata": {"name": "x-0"},
    "spec": {},
    "status": {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
                "lastTransitionTime": "1970-01-01T00:01:40Z",
            }
        ]
    },
}


def test_a_claim_may_take_some_seconds_to_get_its_volume() -> None:
    assert conditions.is_unbound(UNBOUND)
    assert conditions.pod_reason(UNBOUND, {}, 105.0) == ""
    assert "unbound immediate" in conditions.pod_reason(UNBOUND, {}, 120.0)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"state": {"terminated": {"exitCode": 0}}}, ""),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, ""),
        ({"state": {"terminated": {"exitCode": 128}}}, "init container fetch of x-0 failed (exit code 128)"),
        (
            {"state": {"terminated": {"exitCode": 1, "message": "cloning\nfatal: no repository\n"}}},
            "init container fetch of x-0 failed (exit code 1): fatal: no repository",
        ),
        (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 2}}},
            "init container fetch of x-0 failed (exit code 2)",
        ),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}},
            "init container fetch: ErrImagePull: no such image",
        ),
    ],
)
def test_an_init_container_that_fails_is_told(state: dict[str, Any], expected: str) -> None:
    status = {"initContainerStatuses": [{"name": "fetch", **state}]}
    pod = {"metadata": {"name": "x-0"}, "spec": {}, "status": status}
    assert conditions.pod_reason(pod, {"waiting": {"reason": "PodInitializing"}}, 0.0) == expected


def test_a_job_that_a_finalizer_of_others_keeps_says_which() -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {}}
    job = {"metadata": {**deleted, "finalizers": ["foregroundDeletion", "example.com/hold"]}}
    assert conditions.job_reason(job, None, ()).endswith("kept by its finalizer example.com/hold")
    own = {"metadata": {**deleted, "finalizers": ["foregroundDeletion"]}}
    assert conditions.job_reason(own, None, ()) == "the job is being deleted"


def test_the_reason_of_an_oom_kill_has_the_memory_limit() -> None:
    resources = {"limits": {"memory": "512Mi"}}
    pod = {"metadata": {}, "status": {}, "spec": {"containers": [{"name": names.CONTAINER, "resources": resources}]}}
    state = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    assert conditions.pod_reason(pod, state, 0.0) == "OOMKilled (exit code 137, the limit is 512Mi)"
    by_range = {"annotations": {"kubernetes.io/limit-ranger": "LimitRanger plugin set: memory limit for a"}}
    told = conditions.pod_reason(pod | {"metadata": by_range}, state, 0.0)
    assert told == "OOMKilled (exit code 137, the limit is 512Mi, which the namespace's LimitRange sets)"


RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: "
)
NO_PYTHON = 'exec: "python3": executable file not found in $PATH: unknown'


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"waiting": {"reason": "ContainerCreating"}}, ""),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "a" not found'}},
            'CreateContainerConfigError: secret "a" not found (create the Secret or ConfigMap that it names)',
        ),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": "failed to create subPath directory"}},
            "CreateContainerConfigError: failed to create subPath directory",
        ),
        ({"waiting": {"reason": "InvalidImageName", "message": "no"}}, "InvalidImageName: no (check the image's name)"),
        (
            {"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"}},
            "ErrImagePull: no match for platform in manifest: not found (choose one for both, or set nodeSelector)",
        ),
        ({"terminated": {"reason": "OOMKilled", "exitCode": 137}}, "OOMKilled (exit code 137)"),
        ({"terminated": {"reason": "StartError", "exitCode": 128}}, "StartError (exit code 128)"),
        (
            {"terminated": {"reason": "StartError", "exitCode": 128, "message": RUNC + NO_PYTHON}},
            "the image has no python3 (choose one with Python 3.11 and torch 2.6, or later)",
        ),
        (
            {"terminated": {"reason": "StartError", "exitCode": 128, "message": RUNC + "exec format error: unknown"}},
            "the image is for processors of another kind than the node's (choose one for both, or set nodeSelector)",
        ),
        (
            {"terminated": {"reason": "StartError", "exitCode": 128, "message": RUNC + "error during container init"}},
            "its container could not be started: error during container init",
        ),
        ({"terminated": {"reason": "Error", "exitCode": 1}}, ""),
        ({"terminated": {"exitCode": 1}}, ""),
    ],
)
def test_reasons_of_the_kubelet(state: dict[str, Any], expected: str) -> None:
    pod = recorded("running").pods[0]
    pod["status"]["containerStatuses"][0]["state"] = state
    assert note(pod) == expected


def test_a_disruption_and_an_eviction() -> None:
    pod = recorded("running").pods[0]
    pod["status"] |= {"reason": "Evicted", "message": "low on memory"}
    assert note(pod) == "Evicted: low on memory"
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicted"}
    pod["status"]["conditions"].append(disrupted)
    assert note(pod) == "EvictionByEvictionAPI: evicted"


@pytest.mark.parametrize(("name", "holder"), [("quota", "spec"), ("failed-pytorchjob", "runPolicy")])
def test_a_waiting_job_shows_its_reason(name: str, holder: str) -> None:
    job = recorded(name).job
    suspended = job["spec"] if holder == "spec" else job["spec"]["runPolicy"]
    assert conditions.job_reason(job, None, []) == ""
    suspended["suspend"] = True
    assert conditions.job_reason(job, None, []) == "", "a user suspended it"
    job["metadata"]["annotations"][names.ANNOTATION_RELEASED] = "false"
    assert "submit was interrupted" in conditions.job_reason(job, None, [])
    job["metadata"]["annotations"][names.ANNOTATION_RELEASED] = "true"
    waits = QueuePosition(name="team", state="Waiting")
    assert conditions.job_reason(job, waits, []) == "waits in queue team"
    third = QueuePosition(name="team", state="Waiting", position=3, reason="no quota")
    assert conditions.job_reason(job, third, []) == "waits in queue team, position 3: no quota"
    assert conditions.job_reason(job, QueuePosition(name="team", state="Admitted"), []) == ""
    assert conditions.job_reason(job, QueuePosition(name="team", state="Stopped", reason="due to X"), []) == "due to X"


def test_the_latest_warning_is_shown() -> None:
    job, _, _, events = recorded("quota")
    first, second = (event | {"message": word} for event, word in zip(events, ("first", "second"), strict=True))
    first["lastTimestamp"], second["lastTimestamp"] = "2026-11-21T14:00:00Z", "2026-11-21T14:00:01Z"
    for order in ([first, second], [second, first]):
        assert conditions.job_reason(job, None, order) == "FailedCreate: second"


def ready(*, pod: str, containers: bool, **spec: Any) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": pod}],
        "containerStatuses": [{"name": "pytorch", "ready": containers}],
    }
    return {"metadata": {"name": "x-0"}, "spec": {"nodeName": "worker-3", **spec}, "status": status}


def test_a_pod_whose_containers_were_ready_and_that_is_called_unready_is_out_of_reach() -> None:
    lost = "machine worker-3 does not answer: its kubelet has stopped, or it is lost"
    assert conditions.pod_reason(ready(pod="False", containers=True), {}, 0.0) == lost
    assert conditions.pod_reason(ready(pod="True", containers=True), {}, 0.0) == ""
    assert conditions.pod_reason(ready(pod="False", containers=False), {}, 0.0) == "", "it starts"
    assert (
        conditions.pod_reason(ready(pod="False", containers=True, readinessGates=[{"conditionType": "a"}]), {}, 0.0)
        == ""
    )
    assert conditions.pod_reason(ready(pod="False", containers=True) | {"status": {}}, {}, 0.0) == ""


def test_a_sidecar_that_does_not_start_is_told_after_a_while() -> None:
    began = "2026-01-01T00:00:00Z"
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    told: dict[str, Any] = {"name": "proxy", "started": False, "state": {"running": {"startedAt": began}}}
    status = {"initContainerStatuses": [told]}
    pod = {"metadata": {"name": "x-0"}, "spec": {"initContainers": [sidecar]}, "status": status}
    at = datetime.fromisoformat(began).timestamp()
    assert conditions.pod_reason(pod, {}, at + 20) == ""
    assert (
        conditions.pod_reason(pod, {}, at + 40)
        == "sidecar proxy runs for 40 s, and its startup probe has not succeeded"
    )
    assert conditions.pod_reason({**pod, "spec": {"initContainers": [{"name": "proxy"}]}}, {}, at + 40) == "", (
        "it may take long"
    )
    told["started"] = True
    assert conditions.pod_reason(pod, {}, at + 40) == ""


@pytest.mark.parametrize(
    ("sidecar", "one", "ended", "told"),
    [
        ({"startupProbe": {}}, {"started": False}, {"exitCode": 137, "reason": "Error"}, True),
        ({"startupProbe": {}}, {"started": False}, {"exitCode": 143, "reason": "Error"}, True),
        ({"startupProbe": {}}, {"started": True}, {"exitCode": 137, "reason": "Error"}, False),
        ({"startupProbe": {}}, {"started": False}, {"exitCode": 137, "reason": "OOMKilled"}, False),
        ({"startupProbe": {}}, {"started": False}, {"exitCode": 1, "reason": "Error"}, False),
        ({}, {"started": False}, {"exitCode": 137, "reason": "Error"}, False),
    ],
)
def test_a_sidecar_that_is_killed_before_its_startup_probe_succeeds_is_told_as_such(
    sidecar: dict[str, Any], one: dict[str, Any], ended: dict[str, Any], *, told: bool
) -> None:
    state = {"name": "proxy", "restartCount": 1, "state": {"waiting": {}}, "lastState": {"terminated": ended}, **one}
    pod = {
        "metadata": {"name": "x-0"},
        "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always", **sidecar}]},
        "status": {"initContainerStatuses": [state]},
    }
    assert ("and its startup probe has not succeeded" in conditions.pod_reason(pod, {}, 0.0)) is told


def beside(state: dict[str, Any], *, ready: bool = True, **more: Any) -> dict[str, Any]:
    """A pod with a sidecar in this state; its ranks run."""
    status = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "pytorch", "ready": True, "state": {"running": {}}}],
        "initContainerStatuses": [{"name": "proxy", "ready": ready, "state": state, **more}],
    }
    spec = {"nodeName": "m", "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    return {"metadata": {"name": "x-0"}, "spec": spec | {"terminationGracePeriodSeconds": 60}, "status": status}


FAILED: dict[str, Any] = {"terminated": {"exitCode": 1, "message": "proxy: no config\n"}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 0}}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (beside(FAILED, ready=False), "sidecar proxy of x-0 has ended 1 time (exit code 1): proxy: no config"),
        (beside(ENDED, ready=False, restartCount=1), ""),  # perhaps its only work is done
        (beside(ENDED, ready=False, restartCount=2), "sidecar proxy of x-0 has ended 3 times (exit code 0)"),
        (
            beside({"running": {"startedAt": "1970-01-01T00:01:30Z"}}, lastState=FAILED, restartCount=2, started=True),
            "sidecar proxy of x-0 has ended 2 times (exit code 1): proxy: no config",
        ),
        (beside({"running": {"startedAt": "1970-01-01T00:00:00Z"}}, lastState=FAILED, started=True), ""),
    ],
)
def test_a_sidecar_that_ends_is_told_until_it_has_run_for_a_minute(pod: dict[str, Any], reason: str) -> None:
    assert conditions.pod_reason(pod, {"running": {}}, 100.0) == reason


def test_what_outlives_the_ranks_is_told() -> None:
    pod = beside({"running": {}})
    pod["status"]["containerStatuses"][0]["state"] = ENDED
    kept = "the ranks have ended, and sidecar proxy of x-0 has not: it is killed 60 s after them"
    assert conditions.pod_reason(pod, ENDED, 100.0) == kept
    injected = {"name": "istio-proxy", "ready": True, "state": {"running": {}}}
    pod["status"]["containerStatuses"] = [{"name": "pytorch", "ready": False, "state": ENDED}, injected]
    assert conditions.pod_reason(pod, ENDED, 100.0) == "the ranks have ended, and container istio-proxy of x-0 has not"
    pod["status"] = {"containerStatuses": [{"name": "pytorch", "ready": False, "state": ENDED}]}
    assert conditions.pod_reason(pod, ENDED, 100.0) == ""


@pytest.mark.parametrize("named", ["gpu-binpack", None])
def test_a_scheduler_that_says_nothing_of_a_pod_is_told_after_a_while(named: str | None) -> None:
    began = "2026-01-01T00:00:00Z"
    status: dict[str, Any] = {"phase": "Pending"}
    spec = {"schedulerName": named} if named else {}
    pod = {"metadata": {"name": "x-0", "creationTimestamp": began}, "spec": spec, "status": status}
    at = datetime.fromisoformat(began).timestamp()
    assert conditions.pod_reason(pod, {}, at + 20) == ""
    told = f"the scheduler {named or 'default-scheduler'} has said nothing of the pod for 40 s"
    assert conditions.pod_reason(pod, {}, at + 40) == told
    assert conditions.pod_reason({**pod, "spec": {**spec, "nodeName": "m"}}, {}, at + 40) == "", "it has a machine"
    status["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    assert conditions.pod_reason(pod, {}, at + 40) == ""


def test_an_eviction_tells_more_than_an_end_that_no_kubelet_has_seen() -> None:
    ended = {"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}}
    pod: dict[str, Any] = {"metadata": {"name": "x-0"}, "spec": {"nodeName": "m"}, "status": {}}
    assert conditions.pod_reason(pod, ended, 0.0) == "ContainerStatusUnknown (exit code 137)"
    pod["status"] = {"reason": "Evicted", "message": "Usage of EmptyDir volume"}
    assert conditions.pod_reason(pod, ended, 0.0) == "Evicted: Usage of EmptyDir volume"


def test_an_init_container_without_enough_memory_says_so() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    status = {"initContainerStatuses": [{"name": "fetch", "state": ended}]}
    pod = {"metadata": {"name": "x-0"}, "spec": {"nodeName": "m"}, "status": status}
    assert conditions.pod_reason(pod, {}, 0.0) == "init container fetch of x-0 failed (exit code 137, OOMKilled)"


@pytest.mark.parametrize(
    ("limit", "now", "expected"),
    [
        ("20m", 100.0, "the CPU limit 20m has left it 2.0 s of a processor in 100 s"),
        ("20m", 20.0, ""),  # it has begun only now
        ("20m", 900.0, ""),  # it may have started since
        ("500m", 100.0, ""),
    ],
)
def test_a_limit_of_processors_in_which_nothing_starts_is_told(limit: str, now: float, expected: str) -> None:
    container = {"name": names.CONTAINER, "resources": {"limits": {"cpu": limit}}}
    pod: dict[str, Any] = {"metadata": {"name": "x-0"}, "spec": {"containers": [container]}, "status": {}}
    state = {"running": {"startedAt": "1970-01-01T00:00:00Z"}}
    assert conditions.pod_reason(pod, state, now) == expected
    pod["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu limit for a"}
    assert conditions.pod_reason(pod, state, now) == expected + "; the namespace's LimitRange sets it" * bool(expected)


@pytest.mark.parametrize(("always", "what"), [({"restartPolicy": "Always"}, "sidecar"), ({}, "init container")])
def test_the_image_of_a_container_beside_the_ranks_names_it(always: dict[str, str], what: str) -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    status = {"initContainerStatuses": [{"name": "proxy", "state": {"waiting": waiting}}]}
    pod = {"metadata": {"name": "x-0"}, "spec": {"initContainers": [{"name": "proxy", **always}]}, "status": status}
    assert conditions.pull_error(pod) == f"{what} proxy: ErrImagePull: not found"
    assert conditions.pod_reason(pod, {}, 0.0) == f"{what} proxy: ErrImagePull: not found"


def test_an_init_container_that_runs_for_long_is_told_and_a_sidecar_is_not() -> None:
    status = {"initContainerStatuses": [{"name": "fetch", "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}}}]}
    pod: dict[str, Any] = {"metadata": {"name": "x-0"}, "spec": {}, "status": status}
    assert conditions.pod_reason(pod, {}, 50.0) == ""
    assert conditions.pod_reason(pod, {}, 95.0) == "init container fetch has run for 95 s"
    pod["spec"] = {"initContainers": [{"name": "fetch", "restartPolicy": "Always"}]}
    assert conditions.pod_reason(pod, {}, 95.0) == ""
