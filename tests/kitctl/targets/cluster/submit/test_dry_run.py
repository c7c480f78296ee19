"""Objects that the server would reject are found before anything is created or deleted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kitctl.base.errors import ConflictError, Forbidden, UsageError
from kitctl.render import templates
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object, Refused

WITHOUT_PODS = [
    {"verbs": ["*"], "apiGroups": ["batch", "kubeflow.org", "storage.k8s.io", "networking.k8s.io"], "resources": ["*"]},
    {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"]},
    {
        "verbs": ["*"],
        "apiGroups": [""],
        "resources": ["services", "configmaps", "serviceaccounts", "persistentvolumeclaims", "limitranges", "nodes"],
    },
]
# Messages of a real API server's admission plug-ins about a pod, and part of the fix.
# fmt: off
REFUSED: list[tuple[str, str, str]] = [
    ("a quota", "failed quota: all: must specify limits.cpu for: pytorch; limits.memory for: pytorch",
        "resources.limits.cpu, resources.limits.memory"),
    ("a quota of older servers", "failed quota: all: must specify limits.memory",
        "add resources.limits.memory to the job"),
    ("a quota of requests", "failed quota: all: must specify memory for: pytorch",
        "add resources.requests.memory to the job"),
    ("a limit range", "[maximum memory usage per Container is 256Mi, but limit is 512Mi]",
        "describe limitrange"),
    ("Pod Security", 'violates PodSecurity "restricted:latest": runAsNonRoot != true', "security.profile: restricted"),
    ("an account", 'error looking up service account default/x: serviceaccount "x" not found',
        "security.serviceAccount"),
    ("a priority", "no PriorityClass with name high was found", "kubectl get priorityclass"),
]
# fmt: on


def refuse_pods(server: ApiServer, message: str, status: int = 403) -> None:
    def plugin(resource: str, _: Object) -> None:
        if resource == "pods":
            raise Refused(status, f'pods "run-0-x" is forbidden: {message}', "Forbidden")

    server.store.admission.append(plugin)


@pytest.mark.parametrize(("message", "fix"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_admission_errors_of_a_pod_are_reported_by_submit_and_doctor(
    server: ApiServer, kit: Kit, message: str, fix: str
) -> None:
    refuse_pods(server, message)
    output = kit("submit", "--name", "run", exit_code=2)
    assert message in output
    assert fix in output.partition("fix: ")[2]
    assert server.written() == []
    output = kit("doctor", exit_code=1)
    assert "pods          PROBLEM" in output
    assert fix in output


def test_a_webhook_that_denies_a_pod(server: ApiServer, kit: Kit) -> None:
    refuse_pods(server, 'admission webhook "policy.example" denied the request: no team label', 400)
    output = kit("submit", "--name", "run", exit_code=2)
    assert "denied the request: no team label\nfix: a policy of this cluster forbids it" in output


def test_a_webhook_without_dry_runs_does_not_block_a_submit(server: ApiServer, kit: Kit) -> None:
    def plugin(resource: str, _: Object) -> None:
        if resource == "pods":
            raise Refused(400, 'admission webhook "old.example" does not support dry run', "BadRequest")

    server.store.admission.append(plugin)
    kit.submit()
    assert server.names("jobs.batch") == {"run"}


def test_pods_beyond_the_current_quota_may_wait(server: ApiServer, kit: Kit) -> None:
    refuse_pods(server, "exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3")
    output = kit("submit", "--name", "run")
    assert "its pods wait until there is room for them: Pod: " in output
    assert server.names("jobs.batch") == {"run"}


def test_a_user_who_may_not_create_pods_can_submit(server: ApiServer, kit: Kit) -> None:
    server.users["token"] = User(rules=WITHOUT_PODS)
    kit.submit()
    assert server.names("jobs.batch") == {"run"}
    output = kit("doctor", "--name", "other")
    assert 'pods          unknown permission denied: Pod: pods is forbidden: User "alice" cannot create' in output


def test_limits_of_the_server_are_checked_before_anything_is_created(
    server: ApiServer, kit: Kit, tmp_path: Path
) -> None:
    """A user's templates are not covered by kitctl's own rules."""
    own = (templates.folder() / "pod.yaml.j2").read_text()
    tmp_path.joinpath("pod.yaml.j2").write_text(own.replace("{{ job.labels.pod }}", "{disk: a b}"))
    with pytest.raises(UsageError, match="a valid label must be"):
        kit.target().submit(dataclasses.replace(kit.submission(), templates=tmp_path))
    assert server.written() == []


def test_a_job_is_not_deleted_if_its_replacement_would_be_rejected(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    uid = server.store.get(Key("jobs.batch", "default", "run"))["metadata"]["uid"]
    refuse_pods(server, "violates PodSecurity")
    kit("submit", "--name", "run", "--replace", exit_code=2)
    assert server.store.get(Key("jobs.batch", "default", "run"))["metadata"]["uid"] == uid


@pytest.mark.parametrize(("lacking", "refused"), [("configmaps", True), ("persistentvolumeclaims", False)])
def test_a_job_is_not_deleted_if_a_right_is_missing_to_create_what_goes_with_it(
    server: ApiServer, kit: Kit, lacking: str, *, refused: bool
) -> None:
    """What goes with the old job is there, but not after it; its claim is."""
    kit.submit()
    uid = server.store.get(Key("jobs.batch", "default", "run"))["metadata"]["uid"]
    core = ["services", "configmaps", "serviceaccounts", "persistentvolumeclaims", "limitranges", "nodes", "pods"]
    rules = [
        *WITHOUT_PODS[:2],
        {"verbs": ["*"], "apiGroups": [""], "resources": [one for one in core if one != lacking]},
        {"verbs": ["get", "list", "patch", "delete"], "apiGroups": [""], "resources": [lacking]},
    ]
    server.users["token"] = User(rules=rules)
    output = kit("submit", "--name", "run", "--replace", exit_code=1 if refused else 0)
    assert ("cannot create" in output) is refused
    assert (server.store.get(Key("jobs.batch", "default", "run"))["metadata"]["uid"] == uid) is refused


def test_a_quota_used_up_by_the_old_job_does_not_prevent_its_replacement(server: ApiServer, kit: Kit) -> None:
    """The server reports an exceeded quota before a name that exists."""

    def plugin(resource: str, thing: Object) -> None:
        new = not thing["metadata"].get("uid")
        if new and resource in {"jobs.batch", "services", "persistentvolumeclaims"} and server.names(resource):
            raise Refused(403, "exceeded quota: one of each", "Forbidden")

    kit.submit()
    server.store.admission.append(plugin)
    kit.submit(replace=True)
    with pytest.raises(Exception, match="exceeded quota"):
        kit.submit(name="other")
    assert server.names("jobs.batch") == {"run"}


@pytest.mark.parametrize("resource", ["services", "configmaps", "persistentvolumeclaims"])
def test_conflicts_are_found_first(server: ApiServer, kit: Kit, resource: str) -> None:
    name = {"services": "run", "configmaps": "run-status"}.get(resource, "run-snapshots")
    server.put(resource, name, spec={"accessModes": ["ReadWriteMany"]})
    with pytest.raises(ConflictError, match=f"{name!r} already exists and does not belong to this job"):
        kit.submit()
    assert server.written() == []


def test_a_missing_right_is_reported_before_anything_is_created(server: ApiServer, kit: Kit) -> None:
    rules = [{"verbs": ["*"], "apiGroups": ["batch", "storage.k8s.io"], "resources": ["*"]}]
    server.users["token"] = User(rules=rules)
    with pytest.raises(Forbidden, match='cannot create resource "services"'):
        kit.submit()
    assert server.written() == []
