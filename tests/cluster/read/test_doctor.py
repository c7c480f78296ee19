"""Findings of kitctl doctor on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import job, kitctl
from tests.cluster.kubectl import apply, get

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def findings(*words: str, exit_code: int = 0) -> dict[str, dict[str, Any]]:
    output, _, _ = kitctl("doctor", "-o", "json", *words, exit_code=exit_code).partition("\nerror:")
    return {finding["name"]: finding for finding in json.loads(output)["checks"]}


def test_a_job_that_can_run_has_no_problems_and_nothing_is_created(namespace: str) -> None:
    found = findings(*job("run", namespace, "--nodes", "2"))
    assert {name for name, finding in found.items() if finding["result"] != "ok"} == set()
    assert "Kubernetes v1." in found["server"]["message"]
    assert "of 4 nodes" in found["image"]["message"]
    assert found["dry run"]["message"] == "the server would accept all 10 objects"
    assert not get(namespace, "jobs,pvc,services")["items"]


def test_problems_of_a_job_are_reported_with_their_fix(namespace: str) -> None:
    hard = {"pods": "1", "requests.nvidia.com/gpu": "4"}
    apply(
        namespace, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": hard}}
    )
    many = ("--nodes", "2", "--gpus-per-node", "999", "--queue", "team", "--storage-class", "absent")
    found = findings(*job("run", namespace, *many), exit_code=1)
    assert {name for name, finding in found.items() if finding["result"] == "problem"} == {
        *("storage", "GPUs", "quota", "queue", "pods")
    }
    assert "no storage class 'absent'" in found["storage"]["message"]
    assert "no node of the cluster has more than" in found["GPUs"]["message"]
    assert "pods: 2 needed, 1 of 1 left" in found["quota"]["message"]
    assert "requests.nvidia.com/gpu: 1998 needed, 4 of 4 left" in found["quota"]["message"]
    assert "no LocalQueue 'team' in namespace" in found["queue"]["message"]
    assert all(finding["fix"] for finding in found.values() if finding["result"] == "problem")


def test_a_missing_namespace_is_found_by_the_dry_run() -> None:
    found = findings(*job("run", "no-such-namespace"), exit_code=1)
    assert "no-such-namespace" in found["dry run"]["message"]


def test_an_unreachable_server_is_the_only_finding(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    text = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": users}
    config.write_text(json.dumps(text | {"current-context": "c"}))
    output, _, _ = kitctl("doctor", "-o", "json", exit_code=1, kubeconfig=config).partition("\nerror:")
    (only,) = json.loads(output)["checks"]
    assert (only["name"], only["result"]) == ("server", "problem")
    assert "cannot be reached" in only["message"]
