"""The checks of `kitctl doctor` on a cluster, with any quantities, versions and rights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit

POLICIES = {"verbs": ["*"], "apiGroups": ["networking.k8s.io"], "resources": ["*"]}
NO_POLICIES = [
    {"verbs": ["*"], "apiGroups": ["", "batch", "kubeflow.org", "storage.k8s.io"], "resources": ["*"]},
    {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"]},
    {"verbs": ["get"], **{key: value for key, value in POLICIES.items() if key != "verbs"}},
]


def findings(kit: Kit, *words: str, exit_code: int = 0) -> dict[str, Any]:
    output, _, _ = kit("doctor", "-o", "json", *words, exit_code=exit_code).partition("\nerror:")
    return {finding["name"]: finding for finding in json.loads(output[output.index("{") :])["checks"]}


def quota(server: ApiServer, hard: dict[str, str], used: dict[str, str] | None = None) -> None:
    server.put("resourcequotas", "team", status={"hard": hard, "used": used or {}})


def test_a_job_that_could_run_has_no_problems(server: ApiServer, kit: Kit) -> None:
    found = findings(kit, "--nodes", "2")
    assert {name for name, one in found.items() if one["result"] != "ok"} == set()
    assert found["server"]["message"].endswith("Kubernetes v1.33.1")
    assert found["pods"]["message"] == "the server would accept a pod of the job"
    assert server.written() == []


def test_a_user_without_credentials_is_told_once(server: ApiServer, kit: Kit) -> None:
    server.users["token"] = User(name="system:anonymous", rules=[])
    found = findings(kit, "--nodes", "2", exit_code=1)
    assert [*found] == ["server"]
    assert found["server"]["result"] == "problem"
    assert "no credentials: log in" in found["server"]["fix"]


@pytest.mark.parametrize(
    ("memory", "verdict"), [("1e9", "problem"), ("2E", "ok"), ("1000000000000m", "problem"), ("1e12", "ok")]
)
def test_quotas_in_any_form(server: ApiServer, kit: Kit, memory: str, verdict: str) -> None:
    quota(server, {"requests.memory": memory, "requests.cpu": "1e3"}, {"requests.cpu": "100n"})
    found = findings(kit, "--nodes", "2", exit_code=1 if verdict == "problem" else 0)
    assert found["quota"]["result"] == verdict, "two nodes request 1 Gi by default"


def test_gpus_of_nodes_in_any_form(server: ApiServer, kit: Kit) -> None:
    server.put("nodes", "a", "", status={"allocatable": {"nvidia.com/gpu": "4e0"}})
    server.put("nodes", "b", "", status={"allocatable": {"cpu": "31850m"}})
    assert findings(kit, "--gpus-per-node", "4")["GPUs"]["result"] == "ok"
    assert findings(kit, "--gpus-per-node", "8", exit_code=1)["GPUs"]["result"] == "problem"


def test_images_of_nodes_whose_tag_has_moved_have_no_names(server: ApiServer, kit: Kit) -> None:
    server.put(
        "nodes", "a", "", status={"images": [{"names": None, "sizeBytes": 1}, {"names": ["docker.io/team/a:1"]}]}
    )
    server.put("nodes", "b", "", status={"images": None})
    assert "team/a:1 is on 1 of 2 nodes" in findings(kit, "--image", "team/a:1")["image"]["message"]


def test_a_check_without_permission_does_not_stop_the_others(server: ApiServer, kit: Kit) -> None:
    quota(server, {"requests.memory": "plenty"})
    found = findings(kit)
    assert found["quota"]["result"] == "unknown"
    assert "'plenty' is not a quantity" in found["quota"]["message"]
    assert found["pods"]["result"] == "ok"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ({"major": "1", "minor": "30", "gitVersion": "v1.30.9"}, "runs Kubernetes 1.30, which is too old"),
        ({"major": "1", "minor": "30+", "gitVersion": "v1.30.9-eks"}, "runs Kubernetes 1.30, which is too old"),
    ],
)
def test_a_server_that_is_too_old_is_the_only_finding(
    server: ApiServer, kit: Kit, version: dict[str, str], expected: str
) -> None:
    server.version = version
    found = findings(kit, exit_code=1)
    assert found.keys() == {"server"}
    assert expected in found["server"]["message"]
    assert found["server"]["fix"] == "use 1.31 or later"


@pytest.mark.parametrize("version", [{}, {"major": "", "minor": ""}, {"gitVersion": "v1.33.1"}])
def test_a_server_without_a_version_is_checked_too(server: ApiServer, kit: Kit, version: dict[str, str]) -> None:
    server.version = version
    found = findings(kit)
    assert (found["server"]["result"], found["pods"]["result"]) == ("warning", "ok")


def test_the_network_policy_is_shown(kit: Kit) -> None:
    network = findings(kit, "--name", "run")["network"]
    assert network["message"] == "the job gets a policy; whether it is enforced depends on the cluster's network plugin"
    kit.submit()
    assert "policy 'run' exists" in findings(kit, "--name", "run")["network"]["message"]
    off = findings(kit, "--set", "security.networkPolicy=false")["network"]
    assert (off["result"], off["fix"]) == ("warning", "set security.networkPolicy=true")


def test_without_the_right_to_policies_a_job_runs_unless_it_requires_one(server: ApiServer, kit: Kit) -> None:
    server.users["token"] = User(rules=NO_POLICIES)
    require = ("--set", "security.networkPolicy=require")
    assert findings(kit)["network"]["result"] == "warning"
    assert findings(kit, *require, exit_code=1)["network"]["result"] == "problem"
    output = kit("submit", "--name", "strict", *require, exit_code=2)
    assert "security.networkPolicy: require, and you may not create network policies in namespace 'default'" in output
    assert "fix: ask for this right, or set it to true" in output
    assert server.written() == []
    assert "other pods of the cluster can reach the job's ports" in kit("submit", "--name", "run")


def test_a_required_policy_is_created_if_it_is_allowed(server: ApiServer, kit: Kit) -> None:
    kit.submit(security={"networkPolicy": "require"})
    assert server.names("networkpolicies") == {"run"}
