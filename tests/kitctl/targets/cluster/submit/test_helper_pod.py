"""The short-lived helper pod that mounts a claim: fields that it copies from the job's pods, and its requests."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base import names
from kitctl.base.errors import TargetError
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.submit import helper_pod
from kitjob.sections import Resources
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Clock, Kit
from tests.kitctl.targets.cluster.objectstore import Object


def spec_of(**fields: Any) -> dict[str, Any]:
    job = render.manifests(JobSpec(name="run", **fields))[-1]
    pod: dict[str, Any] = helper_pod.manifest(job, call="0123456789")
    assert pod["metadata"]["annotations"] == {names.ANNOTATION_SUBMIT: "0123456789"}
    spec: dict[str, Any] = pod["spec"]
    return spec


def test_the_helper_uses_the_jobs_pull_secrets() -> None:
    assert spec_of(image_pull_secrets=("registry",))["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Resources(), {"requests": {"cpu": "100m", "memory": "512Mi"}}),
        (
            Resources(requests={"cpu": "8", "memory": "64Gi", "rdma/hca": "1"}, limits={"memory": "64Gi"}),
            {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "64Gi"}},
        ),
        (
            Resources(requests={"memory": "128Mi"}, limits={"cpu": "50m"}),
            {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "50m"}},
        ),
    ],
)
def test_the_helper_requests_little_and_no_gpu(given: Resources, expected: dict[str, Any]) -> None:
    (container,) = spec_of(resources=given, gpus_per_node=4)["containers"]
    assert container["resources"] == expected, "and for no GPU"


def test_the_helper_ends_by_itself_and_has_no_token() -> None:
    spec = spec_of()
    (container,) = spec["containers"]
    others = {key: value for key, value in spec.items() if key not in {"containers", "volumes", "securityContext"}}
    assert others == {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": 3600,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    assert container["args"] == ["sleep", "3600"]
    assert spec["volumes"] == [
        {"name": "tmp", "emptyDir": {}},
        {"name": "snapshots", "persistentVolumeClaim": {"claimName": "run-snapshots"}},
    ]
    assert [one["mountPath"] for one in container["volumeMounts"]] == ["/tmp", "/snapshots"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]


def start_pods(resource: str, thing: Object) -> None:
    """An admission plug-in that stands for the kubelet: pods run at once."""
    if resource == "pods":
        running = {"name": names.CONTAINER, "state": {"running": {}}}
        thing["status"] = {"phase": "Running", "containerStatuses": [running]}


def test_no_helper_stays_also_after_an_error(server: ApiServer, kit: Kit) -> None:
    server.store.admission.append(start_pods)
    job = render.manifests(JobSpec(name="run", namespace="default"))[-1]
    with helper_pod.running(kit.target().api, job):
        assert len(server.names("pods")) == 1
    assert server.names("pods") == set()
    with pytest.raises(TargetError, match="the command failed"), helper_pod.running(kit.target().api, job):
        raise TargetError("the command failed")
    assert server.names("pods") == set()


def test_a_helper_that_does_not_start_is_an_error_within_minutes_and_does_not_stay(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_pod, "time", clock := Clock(step=10.0))
    job = render.manifests(JobSpec(name="run", namespace="default"))[-1]
    with (
        pytest.raises(TargetError, match="did not start: its node has not said why"),
        helper_pod.running(kit.target().api, job),
    ):
        pytest.fail("it has not started")
    assert 60 < clock.now < 300, "an image may have to be pulled, but a user waits"
    assert server.names("pods") == set()
