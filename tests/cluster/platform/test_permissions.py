"""A user with few rights: what works, and what kitctl reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.commands import job, kitctl, until_status
from tests.cluster.kubectl import Object, apply, get, kubectl, until
from tests.cluster.submit.test_refusals import kubeconfig_with
from tests.cluster.submit.test_submit import left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]

FEW_RIGHTS = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
Kit = Callable[..., str]


@pytest.fixture
def limited(namespace: str, tmp_path: Path) -> Kit:
    """``kitctl`` for a user with few rights, in this namespace only."""
    return kit_of_user(namespace, FEW_RIGHTS, tmp_path)


def kit_of_user(namespace: str, rules: list[Object], folder: Path) -> Kit:
    """``kitctl`` for a user with these rights in a namespace."""
    rbac = "rbac.authorization.k8s.io"
    apply(
        namespace,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "user"}},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "user"}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "user"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "user"},
            "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}],
        },
    )
    token = kubectl("create", "token", "user", "-n", namespace).strip()
    return partial(kitctl, kubeconfig=kubeconfig_with({"token": token}, namespace, folder))


def test_a_user_with_few_rights_runs_a_job_and_sees_what_is_missing(namespace: str, limited: Kit) -> None:
    toy = ("-m", "kittrain.workloads.toy", "60", "--samples", "64", "--step-time", "0.5")
    output = limited("submit", *job("run", namespace, "--procs-per-node", "1", *toy))
    for missing in (
        "service accounts and roles: status will show no steps, losses and ranks",
        "network policies: other pods of the cluster can reach the job's ports",
        "Secrets: anyone who can reach node 0 and knows the run's id can join the job",
        "claims: no snapshots, a restart begins at step 0",
    ):
        assert f"you may not create {missing.split(':')[0]} in namespace {namespace!r}: " in output
        assert missing.partition(": ")[2] in output
    assert {one for one in left(namespace) if "/kittrain-" not in one} == {"Job/run", "Service/run"}
    until_status("run", namespace, lambda state: state["readyNodes"])
    until(lambda: "training with 1 rank" in limited("logs", "run"))
    assert "warning: this run has no secret" in limited("logs", "run")
    assert "Running" in limited("status", "run")
    assert "run" in limited("list")
    limited("suspend", "run")
    assert "Suspended" in limited("status", "run")
    limited("resume", "run")
    limited("cancel", "run")
    limited("wait", "run", exit_code=103)
    limited("delete", "run")
    until(lambda: left(namespace) == set())


def test_in_another_namespace_it_is_forbidden(namespace: str, limited: Kit) -> None:
    for words in (("list", "-n", "default"), ("status", "run", "-n", "default")):
        output = limited(*words, exit_code=1)
        assert "is forbidden: User" in output
        assert "fix: ask for this right, or use a namespace where you have it" in output
    output = limited("list", "-A", exit_code=1)
    assert "fix: ask for this right, or use a namespace where you have it: kitctl list -n NAMESPACE" in output
    output = limited("submit", "--name", f"run-{namespace}", "-n", "default", exit_code=1)
    assert 'cannot get resource "jobs"' in output


def test_a_claim_that_the_user_may_use_but_not_read(namespace: str, limited: Kit) -> None:
    output = limited("submit", *job("run", namespace, "--claim", "shared", "--selector", "kitctl.test/no-such=node"))
    assert "no snapshots" not in output
    (made,) = get(namespace, "jobs")["items"]
    volumes = {volume["name"]: volume for volume in made["spec"]["template"]["spec"]["volumes"]}
    assert volumes["snapshots"]["persistentVolumeClaim"]["claimName"] == "shared"
