"""Which kind ``auto`` selects, and rejecting kinds that the cluster lacks before anything is created or changed."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from kitctl.base import names
from kitctl.kinds.train_job import ELASTIC_RUNTIME, NO_IMAGE, PLAIN_CLAIM, PLAIN_RUNTIME, RUNTIME
from kitctl.targets.cluster.connection import transport
from kitjob.names import DEFAULT_IMAGE
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object

OURS: Final = {"labels": {"kitctl.dev/runtime": "1"}}
BESIDES: Final = ["", "rbac.authorization.k8s.io", "networking.k8s.io", "storage.k8s.io"]
RESOURCES: Final = {"TrainJob": "trainjobs", "JobSet": "jobsets", "PyTorchJob": "pytorchjobs"}
GROUPS: Final = {"TrainJob": "trainer.kubeflow.org", "JobSet": "jobset.x-k8s.io", "PyTorchJob": "kubeflow.org"}


def may_create(*kinds: str) -> User:
    """A user who may create these kinds, but no Jobs."""
    groups = [*BESIDES, *(GROUPS[kind] for kind in kinds)]
    return User(rules=[{"verbs": ["*"], "apiGroups": groups, "resources": ["*"]}])


def runtime(server: ApiServer, metadata: Object = OURS, *, name: str = RUNTIME, image: str = NO_IMAGE) -> None:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": image}]}}}}
    spec = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}
    server.put("clustertrainingruntimes", name, "", metadata=metadata, spec=spec)


def no_webhook(server: ApiServer, plural: str) -> None:
    """The controller of a kind is down, so its webhook does not respond."""
    message = 'failed calling webhook "x": failed to call webhook: Post "https://x": connection refused'
    server.plan(f"POST .*/{plural}", times=9999, answer=(500, {"kind": "Status", "message": message}))


def made(server: ApiServer) -> set[str]:
    return {kind for kind, resource in RESOURCES.items() if server.names(resource)}


def test_a_user_who_may_create_jobs_gets_an_indexed_job_without_further_requests(server: ApiServer, kit: Kit) -> None:
    runtime(server)
    assert "kind:" not in kit("submit", "--name", "run")
    assert server.names("jobs.batch") == {"run"}
    assert not [one for one in server.requests if "trainjobs" in one.path and one.method == "POST"]


@pytest.mark.parametrize(
    ("allowed", "kind"),
    [(["TrainJob", "JobSet", "PyTorchJob"], "TrainJob"), (["PyTorchJob", "JobSet"], "JobSet"), (["PyTorchJob"],) * 2],
)
def test_the_first_kind_that_works_is_chosen_and_the_reason_shown(
    server: ApiServer, kit: Kit, allowed: list[str], kind: Any
) -> None:
    runtime(server)
    server.users["token"] = may_create(*allowed)
    (kind,) = [kind] if isinstance(kind, str) else kind
    output = kit("submit", "--name", "run")
    assert f"kind: {kind}, since you may not create Jobs in namespace 'default'" in output
    assert ("PyTorchJob is legacy: Kubeflow replaces it by TrainJob" in output) is (kind == "PyTorchJob")
    assert made(server) == {kind}
    assert "run" in kit("list", "-o", "name")


def test_a_kind_without_its_runtime_is_skipped(server: ApiServer, kit: Kit) -> None:
    server.users["token"] = may_create(*RESOURCES)
    output = kit("submit", "--name", "run")
    assert "TrainJob cannot be used: kind: a TrainJob needs the ClusterTrainingRuntime 'kitctl-submit'" in output
    assert made(server) == {"JobSet"}


def test_a_kind_without_a_running_controller_is_skipped(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.1)
    runtime(server)
    server.users["token"] = may_create(*RESOURCES)
    no_webhook(server, "trainjobs")
    no_webhook(server, "jobsets")
    output = kit("submit", "--name", "run")
    assert "JobSet cannot be used:" in output
    assert "connection refused" in output
    assert made(server) == {"PyTorchJob"}


def test_a_kind_that_cannot_express_the_job_is_skipped(server: ApiServer, kit: Kit) -> None:
    runtime(server)
    server.users["token"] = may_create(*RESOURCES)
    assert "policy.ttl: a TrainJob leaves this to its runtime" in kit(
        "submit", "--name", "run", "--set", "policy.ttl=1h"
    )
    assert made(server) == {"JobSet"}


def test_a_train_job_without_the_runtime_is_refused(server: ApiServer, kit: Kit) -> None:
    output = kit("submit", "--name", "run", "--kind", "TrainJob", exit_code=2)
    assert "a TrainJob needs the ClusterTrainingRuntime 'kitctl-submit', which this cluster does not have" in output
    assert "fix: have it installed: helm install kit-platform charts/platform" in output
    assert server.written() == []


@pytest.mark.parametrize("nodes", ["2", "1:2"])
def test_a_runtimes_image_stays(server: ApiServer, kit: Kit, nodes: str) -> None:
    """The platform has chosen it; a job may name another one, and so may a namespace's administrator."""
    name, other = (ELASTIC_RUNTIME, RUNTIME) if ":" in nodes else (RUNTIME, ELASTIC_RUNTIME)
    runtime(server, name=name, image="platform/torch:1")
    runtime(server, name=other)
    submit = ("submit", "--kind", "TrainJob", "--nodes", nodes)
    output = kit(*submit, "--name", "first")
    assert f"image: platform/torch:1, from the runtime {name}\n" in output
    assert f"platform/torch:1, from the runtime {name}, is on no node yet" in kit(
        "doctor", "--kind", "TrainJob", "--nodes", nodes, "--name", "other"
    )
    kit(*submit, "--name", "second", "--image", "mine:1")
    server.put("configmaps", names.NAMESPACE_DEFAULTS, data={"image": "team/torch:3"})
    kit(*submit, "--name", "third")
    images = [trainer_of(server, name)["image"] for name in ("first", "second", "third")]
    assert images == ["platform/torch:1", "mine:1", "team/torch:3"]
    assert "bootstrap" in " ".join(trainer_of(server, "first")["command"]), "the trainer comes along"


def test_a_runtime_without_an_image_leaves_kitctls(server: ApiServer, kit: Kit) -> None:
    runtime(server)
    assert "image: " not in kit("submit", "--name", "run", "--kind", "TrainJob")
    assert trainer_of(server, "run")["image"] == DEFAULT_IMAGE


def trainer_of(server: ApiServer, name: str) -> Object:
    trainer: Object = server.store.get(Key("trainjobs", "default", name))["spec"]["trainer"]
    return trainer


def test_a_runtime_that_is_not_the_kits_is_refused(server: ApiServer, kit: Kit) -> None:
    runtime(server, {})
    output = kit("submit", "--name", "run", "--kind", "TrainJob", exit_code=2)
    assert "needs the ClusterTrainingRuntime 'kitctl-submit' of kitctl, and that one is not kitctl's" in output
    assert server.written() == []


def test_a_runtime_of_another_version_is_refused(server: ApiServer, kit: Kit) -> None:
    runtime(server, {"labels": {"kitctl.dev/runtime": "2"}})
    output = kit("submit", "--name", "run", "--kind", "TrainJob", exit_code=2)
    assert "'kitctl-submit' in version 1, and that one has version 2" in output
    assert "fix: use kitctl and charts/platform of one release" in output
    assert server.written() == []


@pytest.mark.parametrize("kind", RESOURCES)
def test_a_definition_of_another_version_is_refused(server: ApiServer, kit: Kit, kind: str) -> None:
    server.groups[GROUPS[kind]] = ["v7", "v8beta1"]
    output = kit("submit", "--name", "run", "--kind", kind, exit_code=2)
    assert f"the cluster serves {kind}s as v7, v8beta1, and kitctl knows v1" in output
    assert server.written() == []


@pytest.mark.parametrize("kind", RESOURCES)
def test_a_kind_that_is_not_installed_is_refused(server: ApiServer, kit: Kit, kind: str) -> None:
    server.operator = False
    output = kit("submit", "--name", "run", "--kind", kind, exit_code=2)
    assert "fix: the cluster does not know this kind of object; install " in output
    assert server.written() == []


def test_doctor_reports_what_is_missing(kit: Kit) -> None:
    output = kit("doctor", "--kind", "TrainJob", exit_code=1)
    assert "needs the ClusterTrainingRuntime 'kitctl-submit', which this cluster does not have" in output


@pytest.mark.parametrize("kind", ["TrainJob", "JobSet"])
def test_a_job_of_a_fixed_size_is_not_scaled(server: ApiServer, kit: Kit, kind: str) -> None:
    runtime(server)
    kit.submit(kind=kind, nodes="2:4")
    before = server.written()
    output = kit("scale", "run", "--nodes", "3", exit_code=2)
    assert f"'run' is a {kind}: the number of nodes of a {kind} cannot be changed" in output
    assert "fix: submit it with --replace --resume and other --nodes" in output
    assert server.written() == before


def test_a_handwritten_train_job_is_shown_with_its_own_status(server: ApiServer, kit: Kit) -> None:
    spec = {"runtimeRef": {"name": PLAIN_RUNTIME}, "trainer": {"numNodes": 2, "image": "team/image"}}
    metrics = {"world_size": "4", "step": "50", "total_steps": "200", "loss": "0.25", "accuracy": "0.5", "note": "hi"}
    status = {"metrics": [{"name": name, "value": value} for name, value in metrics.items()]}
    server.put("trainjobs", "plain", spec=spec, status={"trainerStatus": status | {"estimatedRemainingSeconds": 90}})
    server.put("trainjobs", "other", spec={"runtimeRef": {"name": "torch-distributed"}})
    assert kit("list", "-o", "name").split() == ["plain"], "not one of another runtime"
    state = json.loads(kit("status", "plain", "-o", "json"))
    progress = {key: state["progress"][key] for key in ("step", "totalSteps", "loss", "etaSeconds", "metrics")}
    assert progress == {"step": 50, "totalSteps": 200, "loss": 0.25, "etaSeconds": 90, "metrics": {"accuracy": 0.5}}
    assert (state["jobKind"], state["nodeRange"]) == ("TrainJob", "2")
    assert state["snapshots"] == f"claim {PLAIN_CLAIM}-plain"
    assert "no job 'other'" in kit("status", "other", exit_code=102)
    kit("suspend", "plain")
    assert server.store.get(Key("trainjobs", "default", "plain"))["spec"]["suspend"] is True
