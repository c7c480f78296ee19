"""Jobs that a quota can never hold are refused; those that no node of today can hold wait, and that is told."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.targets.cluster.submit import room
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit


def quota(
    server: ApiServer, hard: dict[str, str], used: dict[str, str] | None = None, *, name: str = "team", **spec: Any
) -> None:
    server.put("resourcequotas", name, spec=spec, status={"hard": hard, "used": used or {}})


def node(server: ApiServer, name: str, labels: dict[str, str] | None = None, **allocatable: str) -> None:
    server.put("nodes", name, "", metadata={"labels": labels or {}}, status={"allocatable": allocatable})


@pytest.mark.parametrize(
    ("hard", "told"),
    [
        ({"pods": "1"}, "pods: 2 needed, at most 1"),
        ({"requests.memory": "600Mi"}, "requests.memory: 1 GiB needed, at most 600Mi"),
        ({"count/pods": "1"}, "count/pods: 2 needed, at most 1"),
    ],
)
def test_a_quota_that_can_never_hold_a_job_refuses_it(
    server: ApiServer, kit: Kit, hard: dict[str, str], told: str
) -> None:
    quota(server, hard)
    output = kit("submit", "--name", "run", "--nodes", "2", exit_code=2)
    assert f"quota 'team' of namespace 'default' can never hold it: {told}" in output
    assert server.written() == []
    assert told.replace("at most 1", "1 of 1 left").replace("at most 600Mi", "600 MiB of 600Mi left") in kit(
        "doctor", "--nodes", "2", exit_code=1
    )


def test_a_quota_that_others_use_now_or_that_counts_other_pods_refuses_nothing(server: ApiServer, kit: Kit) -> None:
    quota(server, {"pods": "2"}, {"pods": "2"})
    kit("submit", "--name", "later", "--nodes", "2")
    quota(server, {"pods": "1"}, name="best-effort", scopes=["BestEffort"])
    kit("submit", "--name", "run", "--nodes", "2")


def test_an_elastic_job_needs_room_for_its_fewest_nodes(server: ApiServer, kit: Kit) -> None:
    quota(server, {"pods": "2"})
    kit("submit", "--name", "run", "--nodes", "2:4")
    kit("submit", "--name", "more", "--nodes", "3:4", exit_code=2)


def test_checks_can_be_skipped_and_need_no_right(server: ApiServer, kit: Kit) -> None:
    quota(server, {"pods": "1"})
    kit("submit", "--name", "run", "--nodes", "2", "--no-checks")
    everything_else = ["", "batch", "storage.k8s.io", "rbac.authorization.k8s.io", "networking.k8s.io"]
    resources = ["pods", "jobs", "services", "configmaps", "secrets", "serviceaccounts", "roles", "rolebindings"]
    rule = {
        "verbs": ["*"],
        "apiGroups": everything_else,
        "resources": [*resources, "persistentvolumeclaims", "networkpolicies", "storageclasses"],
    }
    server.users["token"] = User(rules=[rule])
    kit("submit", "--name", "other", "--nodes", "2", "--memory", "900Gi")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--memory", "200Gi"], "no node can hold one of its pods: memory: 200 GiB requested, at most 24 GiB there"),
        (["--memory", "20Gi"], ""),
        (["--cpu", "12"], "cpu: 12 requested, at most 8 there"),
        (["--cpu", "6", "--memory", "20Gi"], "none has enough of all of "),
        (["--node-selector", "pool=a100"], "no node has the labels pool=a100"),
        (["--node-selector", "pool=big"], ""),
        (
            ["--node-selector", "pool=big", "--cpu", "6"],
            "no node with its labels can hold one of its pods: cpu: 6 requested",
        ),
        ([], ""),
    ],
)
def test_pods_that_no_node_can_hold_are_told(server: ApiServer, kit: Kit, words: list[str], told: str) -> None:
    node(server, "big", {"pool": "big"}, cpu="4", memory="24Gi")
    node(server, "many", cpu="8", memory="8Gi")
    output = kit("submit", "--name", "run", *words)
    assert "job 'run' submitted" in output
    assert told in output
    assert ("its pods wait until the cluster gets such a node" in output) is bool(told)


def test_of_a_cluster_without_nodes_nothing_is_known() -> None:
    assert room.too_small([], {"a": "b"}, {"cpu": 1.0}) == ""
