"""Every command of kitctl, for people who have a role of the platform chart and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl.render.pod_groups import POD_GROUPS
from kitctl.targets.cluster.checks.rights import Right
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.transport import Transport
from tests.charts.test_platform_access import granted
from tests.cluster.commands import IDLE, NOWHERE, job, until_status
from tests.cluster.jobs import KINDS, SCALABLE
from tests.cluster.kind.settings import KUEUE_LABEL
from tests.cluster.kubectl import Object, get, kubectl, until
from tests.cluster.platform.test_kueue import uses
from tests.cluster.platform.test_permissions import Kit
from tests.cluster.read.test_into_ranks import reaches_a_port
from tests.cluster.release import CLAIM, Release
from tests.kitctl.targets.cluster.apiserver import needed_right

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.long, pytest.mark.timeout(1800)]

LARGE: Final = 3 << 20  # bytes: more than a ConfigMap has room for
TOY: Final = ("-m", "kittrain.workloads.toy", "10000", "--samples", "256", "--batch_size", "16", "--step-time", "0.1")
# Kubernetes 1.35 asks for these instead of `get`.
LATER: Final = {Right("create", "", "pods/exec"), Right("create", "", "pods/portforward")}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[Right]:
    """The rights that requests with a token take, as they are sent; cluster-admin has a certificate."""
    seen: set[Right] = set()
    answer, execute, forward = Transport._answer, Api.execute, Api.forward

    def answered(self: Transport, method: str, kind: str, path: str, *headers: Any, **request: Any) -> Any:
        right = needed_right(method, path)
        if right and self._connection.configuration.api_key:
            seen.add(right)
        return answer(self, method, kind, path, *headers, **request)

    def executed(self: Api, *command: Any, **options: Any) -> Iterator[bytes]:
        seen.add(Right("get", "", "pods/exec"))
        return execute(self, *command, **options)

    def forwarded(self: Api, *where: Any) -> None:
        seen.add(Right("get", "", "pods/portforward"))
        forward(self, *where)

    monkeypatch.setattr(Api, "forward", forwarded)
    monkeypatch.setattr(Transport, "_answer", answered)
    monkeypatch.setattr(Api, "execute", executed)
    return seen


def test_users_can_do_all_that_kitctl_does_and_nothing_besides(
    namespace: str, release: Release, asked: set[Right], tmp_path: Path
) -> None:
    kubectl("label", "namespace", namespace, f"{KUEUE_LABEL}=true")
    user = release.person("user")
    bound = {"user": {"serviceAccounts": [release.account("user")]}}
    release.team = {"sharedClaim": True, "queue": namespace, "roles": bound}
    release.apply(sharedClaim={"size": "1Gi"}, queues=queues(namespace))

    trains_and_is_disturbed(namespace, user)
    sends_a_large_folder(namespace, user, tmp_path)
    for kind in KINDS:
        is_changed(namespace, user, kind)
    for plugin in POD_GROUPS:
        options = job(plugin, namespace, *NOWHERE, "--set", f"scheduling.podGroup={plugin}")
        for command in ("submit", "diff"):
            user(command, *options)
    waits_in_a_queue(namespace, user)
    gets_no_pods(namespace, user)

    roles = [get("", "clusterrole", f"{namespace}-{name}") for name in ("user", "cluster-reader")]
    assert set().union(*map(granted, roles)) ^ asked == LATER


def trains_and_is_disturbed(namespace: str, user: Kit) -> None:
    """All commands, with a job that trains."""
    options = job("run", namespace, "--nodes", "1:2", "--procs-per-node", "1", "--snapshot-every", "20")
    assert results(user("doctor", *options, "--gpus-per-node", "1", "-o", "json")) == {"ok"}
    user("submit", *options, *TOY)
    until_status("run", namespace, lambda state: state["worldSize"] == 2 and (state["progress"]["step"] or 0) > 20)
    user("diff", *options, *TOY)
    user("doctor", "run")
    assert "run" in user("list")
    assert "[rank 0]: epoch" in user("logs", "run")
    assert "rank 0" in user("stacks", "run")
    assert "1\n" in user("exec", "run", "--rank", "1", "--", "sh", "-c", "echo $RANK")
    reaches_a_port(namespace, "run", user.keywords["kubeconfig"])  # type: ignore[attr-defined]
    for fault in ("kill-rank", "preempt"):
        assert "recovered" in user("drill", "run", "--fault", fault, "-y")
    user("scale", "run", "--nodes", "1")
    for command in ("suspend", "resume", "restart", "cancel"):
        user(command, "run")
    user("wait", "run", exit_code=103)
    assert "[rank 0]: epoch" in user("logs", "run"), "of deleted pods"
    assert "run" in user("snapshots", "list", "run")
    user("audit", "run")
    assert "deleted" in user("delete", "run", "--snapshots", "-y")
    assert not get(namespace, "pvc", "-l", "app.kubernetes.io/instance=run")["items"]


def results(report: str) -> set[str]:
    """What the checks of doctor found; ``unknown`` is one that a right was missing for."""
    return {check["result"] for check in json.loads(report)["checks"]}


def sends_a_large_folder(namespace: str, user: Kit, folder: Path) -> None:
    (project := folder / "project").mkdir()
    (project / "noise.bin").write_bytes(os.urandom(LARGE))
    (project / "train.py").write_text("")
    words = ("--workdir", str(project), "--claim", CLAIM, "--", "train.py")
    assert f"sent to claim {CLAIM}" in user("upload", *job("sent", namespace, *words))


def is_changed(namespace: str, user: Kit, kind: str) -> None:
    """All changes of a job whose pods do not run."""
    name = kind.lower()
    options = job(name, namespace, "--kind", kind, "--nodes", "1:2", *NOWHERE)
    for command in ("submit", "diff"):
        user(command, *options)
    assert kind in user("status", name)
    for words in (("suspend",), ("resume",), *([("scale", "--nodes", "1")] if kind in SCALABLE else ()), ("restart",)):
        user(words[0], name, *words[1:])
    user("cancel", name)
    user("delete", name, "-y")


def waits_in_a_queue(namespace: str, user: Kit) -> None:
    """All commands of a job in a queue; what is scaled up gets another Workload when it is started again."""
    where = ("--queue", namespace, "--queue-priority", f"{namespace}-high", *NOWHERE)
    for name in ("first", "second"):
        user("submit", *job(name, namespace, "--nodes", "1:2", *where))
        until_status(name, namespace, lambda state: state["queue"]["state"] == "Admitted")
    user("submit", *job("third", namespace, "--nodes", "2", *where))
    until(lambda: "position 1" in user("status", "third"))
    for nodes in (1, 2):
        user("scale", "first", "--nodes", str(nodes))
        until(partial(uses, namespace, nodes + 2))  # those of the second job, too
    for command in ("suspend", "resume", "restart", "cancel", "delete"):
        user(command, "first")
    for wrong in (("--queue", "absent"), ("--queue-priority", "absent")):
        user("submit", *job("wrong", namespace, *where, *wrong), exit_code=2)


def gets_no_pods(namespace: str, user: Kit) -> None:
    """The reason is in the events."""
    user("submit", *job("none", namespace, *NOWHERE, "--no-checks", "--priority", "absent"))
    until(lambda: "no PriorityClass with name absent" in user("status", "none"))


def queues(name: str) -> Object:
    """Values for a ClusterQueue with room for two nodes, which may borrow two from another one."""
    quotas = {name: {"cpu": "100", "memory": "100Gi", "pods": "2"}}
    both = {one: {"cohort": name, "quotas": quotas} for one in (name, f"{name}-other")}
    return {"flavors": {name: {}}, "clusterQueues": both, "priorities": {f"{name}-high": 10}}


def test_admins_look_after_everybodys_jobs_and_what_the_chart_installs(namespace: str, release: Release) -> None:
    admin, user = release.person("admin"), release.person("user")
    release.team = {"queue": namespace, "roles": {"user": {"serviceAccounts": [release.account("user")]}}}
    everywhere = {"admin": {"serviceAccounts": [release.account("admin")]}}
    release.apply(roles=everywhere, queues=queues(namespace), trainingRuntimes={"enabled": True})
    user("submit", *job("run", namespace, *IDLE))
    assert namespace in admin("list", "-A")
    assert results(admin("doctor", *job("other", "default"), "-o", "json")) == {"ok"}
    for command in ("status", "suspend", "resume", "restart", "cancel", "delete"):
        admin(command, "run")

    changes = {"clusterqueue": {"stopPolicy": "Hold"}, "resourceflavor": {"nodeLabels": {"a": "b"}}}
    for kind, change in changes.items():
        release.kubectl_as("admin", "patch", kind, namespace, "--type=merge", "-p", json.dumps({"spec": change}))
    release.kubectl_as("admin", "label", "clustertrainingruntime", namespace, "seen=yes")
    release.kubectl_as("admin", "delete", "localqueue", namespace)
    bind = ("create", "rolebinding", "third", f"--serviceaccount={namespace}:third")
    release.kubectl_as("admin", *bind, f"--clusterrole={namespace}-user")
    assert "no jobs in namespace" in release.person("third")("list")
    assert "attempting to grant RBAC permissions not currently held" in release.refused(
        "admin", *bind, "--clusterrole=cluster-admin"
    )
    assert "cannot delete resource" in release.refused("admin", "delete", "node", "absent")


def test_users_cannot_give_more_than_they_have_nor_change_the_cluster(namespace: str, release: Release) -> None:
    release.person("user")
    release.team = {"roles": {"user": {"serviceAccounts": [release.account("user")]}}}
    release.apply(queues=queues(namespace))
    bind = ("create", "rolebinding", "mine", f"--serviceaccount={namespace}:default")
    granting = "attempting to grant RBAC permissions not currently held"
    for role in ("edit", f"{namespace}-admin"):
        assert granting in release.refused("user", *bind, f"--clusterrole={role}")
    for words in (
        ("delete", "clusterqueue", namespace),
        ("drain", "kitctl-worker"),
        ("get", "secrets"),
        ("get", "pods", "-n", "default"),
        ("create", "clusterrolebinding", "mine", f"--clusterrole={namespace}-user", "--user=me"),
        ("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite"),
    ):
        assert "is forbidden: User" in release.refused("user", *words), words
