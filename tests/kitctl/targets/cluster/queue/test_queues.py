"""Jobs in a queue of Kueue: rejected before anything is created; stopped, started and scaled by their Workload."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kitctl.base import names
from kitctl.targets.cluster.queue import queues
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object

JOB = Key("jobs.batch", "default", "run")
WORKLOAD = Key("workloads", "default", "job-run")
QUEUED = ("--name", "run", "--queue", "team")
# The rules of Kueue's role for users, and of kitctl's role for submitting.
READ = {"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["*"]}
JOBS = {"verbs": ["*"], "apiGroups": ["batch", ""], "resources": ["*"]}


def quota(cpu: str = "8", **spec: Any) -> Object:
    resources = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "8Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": resources}]}
    return {"resourceGroups": [group]} | spec


@pytest.fixture
def kueue(server: ApiServer) -> ApiServer:
    """The server with Kueue and one queue."""
    server.kueue = ("v1beta1", "v1beta2")
    server.put("localqueues", "team", spec={"clusterQueue": "main"})
    server.put("clusterqueues", "main", "", spec=quota())
    return server


def admit(server: ApiServer, *conditions: str, active: bool = True) -> Object:
    """Create the job's Workload, as Kueue would."""
    labels = {names.LABEL_JOB_UID: server.store.get(JOB)["metadata"]["uid"]}
    status = [{"type": one, "status": "True", "message": ""} for one in conditions]
    return server.put(
        *("workloads", WORKLOAD.name),
        metadata={"labels": labels},
        spec={"active": active},
        status={"conditions": status},
    )


def running(server: ApiServer) -> None:
    """Start the job, as Kueue would."""
    server.store.objects[JOB]["spec"]["suspend"] = False
    admit(server, "QuotaReserved", "Admitted")


def test_the_job_enters_its_queue_once_everything_that_it_needs_exists(kit: Kit, kueue: ApiServer) -> None:
    kueue.put("workloadpriorityclasses", "high", "", value=1)
    kit("submit", *QUEUED, "--nodes", "2", "--queue-priority", "high")
    job = kueue.store.get(JOB)
    assert job["metadata"]["labels"][names.LABEL_QUEUE] == "team"
    assert job["metadata"]["labels"][names.LABEL_WORKLOAD_PRIORITY] == "high"
    assert job["spec"]["suspend"] is True, "until Kueue resumes it"
    created = [one for one in kueue.requests if one.method == "POST" and one.path.endswith("jobs")]
    assert created[-1].body["metadata"]["labels"][names.LABEL_QUEUE] == names.QUEUE_OF_UNRELEASED
    assert kueue.written()[-1].startswith("PATCH /apis/batch/v1/")


def test_a_default_queue_is_left_to_start_the_job(kit: Kit, kueue: ApiServer) -> None:
    def default(resource: str, thing: Object) -> None:
        if resource == "jobs.batch":
            thing["metadata"].setdefault("labels", {}).setdefault(names.LABEL_QUEUE, "default")

    kueue.store.admission.append(default)
    kit("submit", "--name", "run")
    job = kueue.store.get(JOB)
    assert job["metadata"]["labels"][names.LABEL_QUEUE] == "default"
    assert job["spec"]["suspend"] is True
    assert "waits in queue default" in kit("status", "run")


@pytest.mark.parametrize(
    ("options", "spec", "message"),
    [
        (("--queue", "other"), quota(), "no LocalQueue 'other' in namespace 'default'; there is team"),
        (("--nodes", "2"), quota(cpu="100m"), "'main' can never admit 2 such nodes: cpu: 0.2 needed, at most 0.1"),
        (("--gpus-per-node", "1"), quota(), "it has no quota of nvidia.com/gpu"),
        (("--nodes", "3:4"), quota(cpu="250m"), "can never admit 3 such nodes"),
        (("--nodes", "2", "--queue-priority", "urgent"), quota(), "no WorkloadPriorityClass 'urgent'; there are none"),
    ],
)
def test_a_job_that_the_queue_could_never_admit_is_rejected(
    kit: Kit, kueue: ApiServer, options: tuple[str, ...], spec: Object, message: str
) -> None:
    kueue.put("nodes", "machine", "", status={"allocatable": {"nvidia.com/gpu": "8"}})
    kueue.store.objects[Key("clusterqueues", "", "main")]["spec"] = spec
    output = kit("submit", *QUEUED, *options, exit_code=2)
    assert message in output
    assert "fix: " in output
    assert kueue.written() == []
    kit("submit", *QUEUED, *options, "--no-checks")


def test_an_elastic_job_needs_room_for_its_minimum(kit: Kit, kueue: ApiServer) -> None:
    kueue.store.objects[Key("clusterqueues", "", "main")]["spec"] = quota(cpu="250m")
    kit("submit", *QUEUED, "--nodes", "2:4")
    marks = kueue.store.get(JOB)["metadata"]["annotations"]
    assert marks[names.ANNOTATION_MIN_PARALLELISM] == "2"
    output = kit("submit", *QUEUED[2:], "--name", "other", "--kind", "PyTorchJob", "--nodes", "2:4", exit_code=2)
    assert "can never admit 4 such nodes" in output, "Kueue admits a PyTorchJob whole"
    kueue.store.objects[Key("clusterqueues", "", "main")]["spec"] = quota()
    output = kit("submit", *QUEUED[2:], "--name", "other", "--kind", "PyTorchJob", "--nodes", "2:4")
    assert "Kueue starts a PyTorchJob with all of its 4 nodes or not at all" in output


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ((), "scheduling.queue: Kueue is not installed"),
        (("v2",), "the cluster has kueue.x-k8s.io in v2; this kitctl knows v1beta2, v1beta1"),
    ],
)
def test_without_a_known_kueue_nothing_is_created(
    kit: Kit, kueue: ApiServer, versions: tuple[str, ...], message: str
) -> None:
    kueue.kueue = versions
    assert message in kit("submit", *QUEUED, exit_code=2)
    assert kueue.written() == []


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_version_is_the_servers(kit: Kit, kueue: ApiServer, version: str) -> None:
    kueue.kueue = (version,)
    kit("submit", *QUEUED)
    asked = {one.path for one in kueue.requests if "/localqueues/" in one.path}
    assert asked == {f"/apis/kueue.x-k8s.io/{version}/namespaces/default/localqueues/team"}


def test_a_queue_that_admits_nothing_for_now_lets_the_job_wait(kit: Kit, kueue: ApiServer) -> None:
    stopped = [{"type": "Active", "status": "False", "message": "ClusterQueue is stopped"}]
    kueue.store.objects[Key("localqueues", "default", "team")]["status"] = {"conditions": stopped}
    assert "queue 'team' is inactive: ClusterQueue is stopped: the job waits" in kit("submit", *QUEUED)
    assert "queue 'team' is inactive" in kit("doctor", *QUEUED)


def test_a_user_who_may_not_read_queues_may_submit_to_one(kit: Kit, kueue: ApiServer) -> None:
    kueue.users["plain"] = User("plain", [JOBS | {"apiGroups": ["batch", "", "rbac.authorization.k8s.io"]}])
    kit("submit", *QUEUED, token="plain")
    assert "waits in queue team" in kit("status", "run", token="plain")


def test_status_shows_position_and_reason(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED)
    found = admit(kueue)
    assert "waits in queue team\n" in kit("status", "run")
    kueue.pending = [{"metadata": {"name": WORKLOAD.name}, "positionInClusterQueue": 2}]
    why = {"type": "QuotaReserved", "status": "False", "message": "no cpu left"}
    kueue.store.objects[WORKLOAD] = found | {"status": {"conditions": [why]}}
    page = kit("status", "run")
    assert "waits in queue team, position 3: no cpu left" in page
    assert re.search(r"^Queue +team \(waiting\)", page, re.MULTILINE)
    assert "waits in queue team: no cpu left" in kit("list", "-o", "wide")
    kueue.plan("pendingworkloads", times=1, answer=(503, {"kind": "Status", "message": "Kueue is away"}))
    assert "waits in queue team: no cpu left" in kit("status", "run"), "at once, without the position"
    kueue.plan("/workloads$", answer=(500, {"kind": "Status", "message": "conversion webhook failed"}))
    assert "waits in queue team\n" in kit("status", "run"), "at once, without the reason"


@pytest.mark.parametrize("command", ["suspend", "cancel"])
def test_a_queued_job_is_stopped_by_its_workload(kit: Kit, kueue: ApiServer, command: str) -> None:
    kit("submit", *QUEUED)
    running(kueue)
    kit(command, "run")
    assert kueue.store.get(WORKLOAD)["spec"]["active"] is False
    assert kueue.store.get(JOB)["spec"]["suspend"] is False, "only Kueue sets it, later"
    page = kit("status", "run")
    assert ("Cancelled" if command == "cancel" else "Suspended") in page
    kit("restart" if command == "cancel" else "resume", "run")
    assert kueue.store.get(WORKLOAD)["spec"]["active"] is True
    assert names.ANNOTATION_CANCELLED not in kueue.store.get(JOB)["metadata"]["annotations"]


def test_without_the_right_to_change_workloads_nothing_is_changed(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED)
    running(kueue)
    kueue.users["plain"] = User("plain", [READ, JOBS])
    before = kueue.written()
    for command in ("suspend", "cancel", "restart"):
        output = kit(command, "run", token="plain", exit_code=1)
        assert "queue 'team' decides when this job runs, and you may not change its Workload" in output
        assert "kueue-workload-editor-role" in output
    assert [one for one in kueue.written()[len(before) :] if "/workloads/" not in one] == []
    assert kueue.store.get(WORKLOAD)["spec"]["active"] is True


@pytest.mark.usefixtures("kueue")
def test_a_workload_that_kueue_never_makes_is_reported(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "WORKLOAD_SECONDS", 0.0)
    kit("submit", *QUEUED)
    assert "Kueue has made no Workload for 'run'" in kit("suspend", "run", exit_code=1)


def test_a_job_of_which_kueue_makes_no_workload_has_a_cause(
    kit: Kit, kueue: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MADE_SECONDS", 0.0)
    kit("submit", *QUEUED)
    monkeypatch.setattr(queues, "UNMADE_SECONDS", 1e12)
    assert "waits in queue team\n" in kit("status", "run"), "it may be about to"
    monkeypatch.setattr(queues, "UNMADE_SECONDS", 0.0)
    kueue.plan("GET .*/workloads$", answer=(403, {"kind": "Status", "reason": "Forbidden", "message": "", "code": 403}))
    kueue.plan("GET .*/workloads$", answer=(403, {"kind": "Status", "reason": "Forbidden", "message": "", "code": 403}))
    assert "waits in queue team\n" in kit("status", "run"), "who may not read Workloads is told nothing of them"
    page = kit("why", "run")
    assert page.startswith("Kueue has made no Workload of the job for ")
    assert "kubectl get namespace default --show-labels has to fit managedJobsNamespaceSelector" in page
    assert "kubectl get pods -n kueue-system" in page
    kueue.faults.clear()
    kueue.plan("GET .*/workloads$", times=1)
    kueue.plan("GET .*/workloads$", before=lambda: admit(kueue))
    assert "made no Workload" not in kit("why", "run"), "it is made in this moment"


def test_if_kueue_was_uninstalled_the_job_itself_is_suspended(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED)
    kueue.store.objects[JOB]["spec"]["suspend"] = False
    kueue.kueue = ()
    kit("suspend", "run")
    assert kueue.store.get(JOB)["spec"]["suspend"] is True


def test_a_running_job_is_scaled_only_where_kueue_follows(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED, "--nodes", "2:4")
    running(kueue)
    output = kit("scale", "run", "--nodes", "3", exit_code=2)
    assert "Kueue would stop it for more or fewer" in output
    assert "kitctl suspend run" in output
    assert kueue.store.get(JOB)["spec"]["parallelism"] == 4
    kueue.store.objects[JOB]["spec"]["template"]["spec"]["schedulingGates"] = [{"name": names.GATE_ELASTIC}]
    kit("scale", "run", "--nodes", "3")
    job = kueue.store.get(JOB)
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 3
    assert names.ANNOTATION_MIN_PARALLELISM not in job["metadata"]["annotations"]


def test_an_earlier_workloads_annotation_is_removed_before_the_job_is_restarted(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED, "--nodes", "2:4")
    admit(kueue)
    template = kueue.store.objects[JOB]["spec"]["template"]
    template["metadata"]["annotations"] = {names.ANNOTATION_WORKLOAD: "an-earlier-one", "other": "stays"}
    kueue.store.immutable = frozenset()  # while a Job is suspended, as this one is
    kit("resume", "run")
    assert kueue.store.get(JOB)["spec"]["template"]["metadata"]["annotations"] == {"other": "stays"}
    assert kueue.names("workloads") == set(), "Kueue makes a new one"


def test_a_job_that_kueue_could_not_start_is_restarted(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED)
    found = admit(kueue)
    ended = {"type": "Finished", "status": "True", "reason": "FailedToStart", "message": "conflict"}
    kueue.store.objects[WORKLOAD] = found | {"status": {"conditions": [ended]}}
    assert "Kueue could not start it, kitctl restart does: conflict" in kit("status", "run")
    kit("restart", "run")
    assert kueue.store.get(WORKLOAD)["spec"]["active"] is True, "Kueue makes another one"


def test_a_waiting_job_may_be_scaled(kit: Kit, kueue: ApiServer) -> None:
    kit("submit", *QUEUED, "--nodes", "2:4")
    admit(kueue)
    kit("scale", "run", "--nodes", "2")
    assert kueue.store.get(JOB)["spec"]["parallelism"] == 2


@pytest.mark.parametrize(
    ("group", "path"),
    [("coscheduling", "scheduling.x-k8s.io/v1alpha1"), ("volcano", "scheduling.volcano.sh/v1beta1")],
)
def test_a_pod_group_is_created_with_the_job_if_the_cluster_serves_them(
    kit: Kit, server: ApiServer, group: str, path: str
) -> None:
    words = ("submit", "--name", "run", "--nodes", "2:4", "--set", f"scheduling.podGroup={group}")
    server.plan(f"/apis/{path}/", answer=(404, "404 page not found\n"))
    assert f"so {group} is not installed" in kit(*words, exit_code=2)
    assert server.written() == []
    kit(*words)
    assert f"POST /apis/{path}/namespaces/default/podgroups" in server.written()
    made = server.store.get(Key("podgroups", "default", "run"))
    assert made["spec"] == {"minMember": 2}
    assert made["metadata"]["ownerReferences"][0]["name"] == "run"
    kit("delete", "run")
    assert server.names("podgroups") == set()


def test_a_restart_waits_until_the_earlier_workload_is_gone(kit: Kit, kueue: ApiServer) -> None:
    """Kueue holds it with a finalizer, and would otherwise restore from it what prevents the start."""
    kit("submit", *QUEUED)
    admit(kueue)
    kueue.store.objects[WORKLOAD]["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
    template = kueue.store.objects[JOB]["spec"]["template"]
    template["metadata"]["annotations"] = {names.ANNOTATION_WORKLOAD: "an-earlier-one"}
    kueue.store.immutable = frozenset()
    gone: list[int] = []

    def collect() -> None:
        kueue.store.remove(WORKLOAD)
        gone.append(len(kueue.requests))

    kueue.plan("GET .*/workloads/job-run$", before=collect)
    kit("resume", "run")
    assert gone, "it was looked for until it was gone"
    assert not any(
        str(one).endswith("/jobs/run") and one.method == "PATCH" and "spec" in one.body
        for one in kueue.requests[: gone[0]]
    )
