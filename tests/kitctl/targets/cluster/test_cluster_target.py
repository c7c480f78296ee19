"""The command line on a fake API server: what commands print, and which objects they act on."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from click.shell_completion import ShellComplete

from kitctl.base import names
from kitctl.cli import cli
from kitctl.kinds.indexed_job import INDEX
from kitctl.kinds.train_job import TrainJob
from kitctl.targets.cluster.connection import transport
from kitjob import timeline
from kitjob.names import HISTORY_KEY
from kitjob.timeline import Event, Row, Writer
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object

NO_CLAIM: Final[dict[str, Any]] = {"snapshots": {"enabled": False}}  # so there are no log copies to read
TIMES = [f"2026-01-01T00:00:0{second}.000000000Z" for second in range(4)]


def pod(server: ApiServer, job: str = "run", node: int = 0) -> Object:
    """A running pod of a job, with four log lines."""
    labels = {
        names.LABEL_NAME: names.APP_NAME,
        names.LABEL_COMPONENT: "trainer",
        names.LABEL_INSTANCE: job,
        INDEX: str(node),
    }
    running = {"name": names.CONTAINER, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    server.logs[f"{job}-{node}"] = [f"{time} [rank {node}]: line {number}" for number, time in enumerate(TIMES)]
    status = {"phase": "Running", "containerStatuses": [running]}
    return server.put("pods", f"{job}-{node}", metadata={"labels": labels}, spec={"nodeName": "m"}, status=status)


def test_jobs_are_listed_by_phase(server: ApiServer, kit: Kit) -> None:
    kit.submit(name="waits")
    kit.submit(name="ends")
    kit("cancel", "ends")
    assert kit("list", "--phase", "Pending", "-o", "name").split() == ["waits"]
    assert kit("list", "--phase", "cancelled", "-o", "name").split() == ["ends"]
    assert kit("list", "--phase", "Running") == "no jobs in namespace 'default'\n"
    assert server.names("jobs.batch") == {"waits", "ends"}


@pytest.mark.parametrize(
    ("labels", "annotations", "told"),
    [
        ({}, {names.ANNOTATION_SUBMIT: "a"}, ""),
        ({}, {}, "manifest, whose other objects stay: kubectl delete service,configmap,secret,networkpolicy,"),
        (
            {names.LABEL_MANAGED_BY: "Helm"},
            {"meta.helm.sh/release-name": "my-run"},
            "Helm release, whose other objects stay: helm uninstall my-run -n default",
        ),
    ],
)
def test_what_stays_of_a_job_that_submit_has_not_made_is_told(
    server: ApiServer, kit: Kit, labels: dict[str, str], annotations: dict[str, str], told: str
) -> None:
    kit.submit()
    job = server.store.objects[Key("jobs.batch", "default", "run")]
    job["metadata"]["labels"].update(labels)
    job["metadata"]["annotations"] = annotations
    output = kit("delete", "run", "-y")
    assert told in output
    assert ("stay: " in output) is bool(told)


@pytest.mark.usefixtures("server")
def test_a_namespace_that_does_not_exist_is_told_rather_than_that_it_has_no_jobs(kit: Kit) -> None:
    """Most often it is misspelt, or has been deleted with the job."""
    assert "there is no namespace 'taem'" in kit("list", "-n", "taem")
    assert "no job 'run' in namespace 'taem', which does not exist" in kit("status", "run", "-n", "taem", exit_code=102)
    assert "there is no" not in kit("list", "-n", "team")
    assert "which does not exist" not in kit("status", "run", "-n", "team", exit_code=102)


def test_who_may_read_no_namespace_is_told_as_much_as_they_may_know(server: ApiServer, kit: Kit) -> None:
    rules = [{"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["jobs", "pods", "configmaps"]}]
    server.users["token"] = User("ada", rules)
    assert kit("list", "-n", "taem") == "no jobs in namespace 'taem'\n"
    assert "does not exist" not in kit("status", "run", "-n", "taem", exit_code=102)


def test_logs_have_timestamps_and_a_start_time_on_request(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    pod(server)
    assert kit("logs", "run").splitlines() == [f"[rank 0]: line {number}" for number in range(4)]
    assert kit("logs", "run", "--timestamps", "--tail", "1") == f"{TIMES[3]} [rank 0]: line 3\n"
    assert kit("logs", "run", "--since-time", TIMES[2]).splitlines() == ["[rank 0]: line 2", "[rank 0]: line 3"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("exec /usr/bin/python3: exec format error", "the image is for processors of another kind than the node's ("),
        ("/usr/bin/python3: No module named kittrain", "the image has no kittrain (leave out --trainer image, or "),
        ("ValueError: anything else", "its agent ended with exit code 1: ValueError: anything else"),
    ],
)
def test_what_ended_before_an_agent_is_told_from_its_log(server: ApiServer, kit: Kit, line: str, told: str) -> None:
    kit.submit(**NO_CLAIM)
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": TIMES[3]}
    status = {"phase": "Failed", "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}]}
    pod(server)
    server.store.patch(Key("pods", "default", "run-0"), {"status": status}, apply=False)
    server.logs["run-0"] = [f"{TIMES[0]} {line}"]
    output = kit("status", "run")
    assert told in output
    assert ("the image" in output) == bool(told)
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": TIMES[3], "message": "too many"}
    server.store.patch(Key("jobs.batch", "default", "run"), {"status": {"conditions": [failed]}}, apply=False)
    assert told in kit("status", "run")
    assert told in kit("wait", "run", exit_code=100)


def test_a_log_that_cannot_be_read_delays_no_status(server: ApiServer, kit: Kit) -> None:
    kit.submit(**NO_CLAIM)
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": TIMES[3]}
    status = {"phase": "Failed", "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}]}
    pod(server)
    server.store.patch(Key("pods", "default", "run-0"), {"status": status}, apply=False)
    server.plan("GET .*/pods/run-0/log", answer=(403, {"kind": "Status", "message": "cannot"}))
    assert "run-0" in kit("status", "run")


def test_follow_with_tail_starts_with_the_last_lines_and_repeats_none(server: ApiServer, kit: Kit) -> None:
    kit.submit(**NO_CLAIM)
    key = Key("pods", "default", "run-0")
    pod(server)
    ended = {"name": names.CONTAINER, "state": {"terminated": {"exitCode": 0, "finishedAt": TIMES[3]}}}

    def go_on() -> None:
        """After the tail was read: log one more line, and end the job."""
        server.logs["run-0"].append("2026-01-01T00:00:09.000000000Z [rank 0]: last")
        server.store.patch(key, {"status": {"containerStatuses": [ended]}}, apply=False)
        complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
        job = Key("jobs.batch", "default", "run")
        server.store.patch(job, {"status": {"conditions": [complete]}}, apply=False)

    server.plan("GET .*/pods/run-0/log", times=1)
    server.plan("GET .*/pods/run-0/log", before=go_on)
    output = kit("logs", "run", "-f", "--tail", "2").splitlines()
    assert output == ["[rank 0]: line 2", "[rank 0]: line 3", "[rank 0]: last"]


def test_a_followed_log_continues_after_its_connection_broke(server: ApiServer, kit: Kit) -> None:
    kit.submit(**NO_CLAIM)
    pod(server)
    server.plan("GET .*/pods/run-0/log", lost="halfway")
    server.plan("GET .*/pods/run-0/log", lost="before")

    def end() -> None:
        server.store.remove(Key("pods", "default", "run-0"))
        server.store.patch(
            Key("jobs.batch", "default", "run"),
            {"metadata": {"annotations": {names.ANNOTATION_CANCELLED: "2026-01-01T00:00:09Z"}}},
            apply=False,
        )

    server.plan("GET .*/pods/run-0$", before=end)
    lines = [line for line in kit("logs", "run", "-f").splitlines() if line.startswith("[rank")]
    assert lines == [f"[rank 0]: line {number}" for number in range(4)]


@pytest.mark.timeout(60)
def test_a_pod_on_a_lost_node_does_not_delay_the_end_of_a_job(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server cannot reach that node's kubelet for the pod's log, and reports this on each request."""
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.1)
    kit.submit(**NO_CLAIM)
    pod(server)
    pod(server, node=1)
    silent = {"kind": "Status", "message": "dial tcp 10.0.0.7:10250: i/o timeout"}
    server.plan("GET .*/pods/run-1/log", times=9999, answer=(500, silent))
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}

    def end() -> None:
        server.store.remove(Key("pods", "default", "run-0"))
        job = Key("jobs.batch", "default", "run")
        server.store.patch(job, {"status": {"conditions": [complete]}}, apply=False)

    server.plan("GET .*/pods/run-0$", before=end)
    assert [line for line in kit("logs", "run", "-f").splitlines() if line.startswith("[rank 0]")]


def test_names_of_jobs_are_completed(server: ApiServer, kit: Kit) -> None:
    for name in ("digits-one", "digits-two", "other"):
        kit.submit(name=name)
    words = ["status", "--kubeconfig", str(server.kubeconfig(kit.folder))]
    completed = ShellComplete(cli, {}, "kitctl", "_KITCTL_COMPLETE").get_completions(words, "digits-")
    assert [item.value for item in completed] == ["digits-one", "digits-two"]


def test_without_a_claim_events_come_from_the_status_config_map(server: ApiServer, kit: Kit) -> None:
    kit.submit(**NO_CLAIM)
    pod(server)
    assert "has no history" in kit("events", "run", exit_code=101)
    lines: list[timeline.Line] = [
        Writer(node=0, id="a", time=5.0),
        Event(time=6.0, what="joined", node=0, round=1, world=1, nodes=1),
        Row(time=8.0, seconds=1.0, round=1, world=1, step=3, steps=3, loss=0.5),
    ]
    tail = '{"run": "r"}\n' + timeline.content(lines).decode()
    server.store.patch(Key("configmaps", "default", "run-status"), {"data": {HISTORY_KEY: tail}}, apply=False)
    assert "group 1: 1 node, 1 rank" in kit("events", "run")
    assert "loss: 0.5" in kit("plot", "run", "--metric", "loss")


def test_a_volume_whose_config_map_is_missing_is_told_from_the_events_of_its_pod(server: ApiServer, kit: Kit) -> None:
    kit.submit(**NO_CLAIM)
    waits = pod(server)
    creating = {"name": names.CONTAINER, "state": {"waiting": {"reason": "ContainerCreating"}}}
    status = {"phase": "Pending", "containerStatuses": [creating]}
    server.store.patch(Key("pods", "default", "run-0"), {"status": status}, apply=False)
    about = {"kind": "Pod", "name": "run-0", "uid": waits["metadata"]["uid"]}
    message = 'MountVolume.SetUp failed for volume "config" : configmap "nocm" not found'
    event: dict[str, Any] = {
        "type": "Warning",
        "reason": "Failed",
        "message": "Error: ErrImagePull",
        "involvedObject": about,
    }
    server.put("events", "run-0.0", **event)
    assert "ErrImagePull" not in kit("status", "run"), "the container's status will say it, with the image's name"
    late = {"reason": "FailedScheduling", "message": "0/4 nodes are available: ... not found"}
    server.put("events", "run-0.2", **event | late)
    assert "0/4 nodes" not in kit("status", "run"), "it has its machine by now"
    server.put("events", "run-0.1", **event | {"reason": "FailedMount", "message": message})
    page = kit("status", "run")
    assert message in page
    assert re.search(r"^Fix +create it in the job's namespace", page, re.MULTILINE)
    cause, fix, *_ = kit("why", "run").splitlines()
    assert cause == "the configmap nocm, which a volume of the job names, does not exist"
    assert fix.startswith("fix: create it in the job's namespace")
    assert f"FailedMount: {message}" in kit("doctor", "run")


def test_a_train_job_whose_job_set_no_controller_has_written_to_says_so(server: ApiServer, kit: Kit) -> None:
    needed = TrainJob.prerequisite
    server.put(needed.plural, needed.name, "", metadata={"labels": {needed.label: needed.version}})
    kit.submit(kind="TrainJob", **NO_CLAIM)
    key = Key("trainjobs", "default", "run")
    server.store.objects[key]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert kit("why", "run").startswith("Kubeflow Trainer 2.2 or later has not touched the TrainJob for ")
    server.store.objects[key]["status"] = {"jobsStatus": [{"name": "node"}]}
    assert "has not touched" not in kit("why", "run")
    parts: dict[str, Any] = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"suspend": False}}
    server.put("jobsets", "run", **parts)
    made = server.store.objects[Key("jobsets", "default", "run")]
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert kit("why", "run").startswith("the JobSet controller has not touched the JobSet for ")
    made["status"] = {"restarts": 0}
    assert "has not touched" not in kit("why", "run")
