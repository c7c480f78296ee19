"""What a user may create, from the rules that the API server lists."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.targets.cluster.connection.permissions import Permissions

JOBS: dict[str, Any] = {"verbs": ["create", "patch"], "apiGroups": ["batch"], "resources": ["jobs"]}


def permissions(*rules: dict[str, Any], incomplete: bool = False) -> Permissions:
    return Permissions({"resourceRules": list(rules), "incomplete": incomplete})


@pytest.mark.parametrize(
    ("change", "may"),
    [
        ({}, True),
        ({"verbs": ["*"]}, True),
        ({"apiGroups": ["*"], "resources": ["*"]}, True),
        ({"verbs": ["create"]}, False),  # server-side apply is a patch, too
        ({"apiGroups": [""]}, False),
        ({"resources": ["jobs/status"]}, False),
        ({"resourceNames": ["one"]}, False),  # but no creation
    ],
)
def test_one_rule_must_allow_verb_group_and_resource(change: dict[str, Any], *, may: bool) -> None:
    assert permissions(JOBS | change).may_apply("Job.batch") is may


def test_rules_are_combined() -> None:
    parts = [JOBS | {"verbs": [verb]} for verb in ("create", "patch")]
    assert permissions(*parts).may_apply("Job.batch")
    assert not permissions(parts[0]).may_apply("Job.batch")


def test_all_kinds_must_be_allowed() -> None:
    assert not permissions(JOBS).may_apply("Job.batch", "Service")
    assert permissions(JOBS, JOBS | {"apiGroups": [""], "resources": ["services"]}).may_apply("Job.batch", "Service")


def test_an_incomplete_list_of_rights_denies_nothing() -> None:
    assert permissions(incomplete=True).may_apply("Job.batch")
    assert not permissions().may_apply("Job.batch")
