"""Which rights each use of kitctl takes, and what doctor says about those that a user lacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kitctl.kinds import DEFAULT, KINDS
from kitctl.targets.cluster.checks import rights
from kitctl.targets.cluster.checks.rights import JOB, Right, Use
from kitctl.targets.cluster.connection.permissions import Permissions
from kitctl.targets.cluster.submit.preflight import OPTIONAL_PARTS
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit

ALL = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def test_a_use_takes_its_rights_for_each_kind_of_job() -> None:
    use = Use("change", {JOB: ("patch",), "Pod/exec": ("get",), "Role": ("create",)})
    assert rights.of([use], [DEFAULT, KINDS["TrainJob"]]) == {
        Right("patch", "batch", "jobs"),
        Right("patch", "trainer.kubeflow.org", "trainjobs"),
        Right("get", "", "pods/exec"),
        Right("create", "rbac.authorization.k8s.io", "roles"),
    }


def test_all_that_submit_asks_for_is_in_the_table() -> None:
    """``Permissions.may_apply`` decides what a job is submitted without."""
    optional = [kind for part in OPTIONAL_PARTS for kind in part.kinds]
    asked = ("Job.batch", "Service", "ConfigMap", "PersistentVolumeClaim", *optional)
    known = rights.of(rights.SUBMITTING, KINDS.values())
    rules = [{"verbs": [one.verb], "apiGroups": [one.group], "resources": [one.resource]} for one in known]
    assert Permissions({"resourceRules": rules}).may_apply(*asked)


@pytest.mark.parametrize(
    ("rules", "lacking"),
    [
        (ALL, []),
        (
            [{"verbs": ["get", "list", "create", "patch"], "apiGroups": ["*"], "resources": ["*"]}],
            [
                "delete: you may not delete jobs, delete persistentvolumeclaims",
                "snapshots, audit, logs of deleted pods: you may not delete pods",
                "drill: you may not delete pods",
            ],
        ),
    ],
)
def test_what_is_lacking_is_said_with_its_rights(rules: list[dict[str, Any]], lacking: list[str]) -> None:
    assert list(rights.lacking(Permissions({"resourceRules": rules}), rights.AFTERWARDS, DEFAULT)) == lacking


def test_doctor_names_what_a_user_cannot_do_with_a_job(server: ApiServer, kit: Kit) -> None:
    some = [{"verbs": ["get", "list", "create", "patch"], "apiGroups": ["*"], "resources": ["*"]}]
    server.users["some"] = User("ada", some)
    (finding,) = [
        one for one in json.loads(kit("doctor", "-o", "json", token="some"))["checks"] if one["name"] == "rights"
    ]
    assert finding["result"] == "warning"
    assert "; drill: you may not delete pods" in finding["message"]
    assert "in a queue" not in finding["message"], "the job is in none"
    assert "docs/platform.md has a role for users" in finding["fix"]
