from __future__ import annotations

import json
from typing import Any

import pytest

from kitctl.base.errors import SpecError
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitjob import variables
from tests.charts.helm import refusal, rendered


def kitctl_errors(job: dict[str, Any]) -> set[str]:
    with pytest.raises(SpecError) as caught:
        specfile.build(JobRequest(flags={"name": "job", **job}))
    return {str(problem) for problem in caught.value.problems}


@pytest.mark.parametrize(
    "job",
    [
        {"nodes": "0:2"},
        {"nodes": "4:2"},
        {"name": "a.b"},
        {"name": "7b"},
        {"name": "job-"},
        {"name": "a" * 62},
        {"name": "a" * 54, "kind": "PyTorchJob", "nodes": 11},
        {"name": "a" * 49, "kind": "JobSet", "nodes": 3},
        {"kind": "TrainJob", "scheduling": {"queue": "research"}},
        {"secrets": {"RANK": "a/b"}},
        {"env": {"A": ""}, "secrets": {"A": "a/b"}},
        {"env": {"KIT_SCRIPT_HOOKS": "yes"}},
        {"envFrom": [{}]},
        {"envFrom": [{"prefix": "A_"}, {"configMap": "a", "secret": "b"}]},
        {"volumes": [{"mountPath": "/x"}]},
        {"volumes": [{"mountPath": "/x", "claim": "a", "secret": "b"}]},
        {"volumes": [{"mountPath": "x", "emptyDir": "1Gi"}]},
        {"nodes": "1:2", "snapshots": {"accessMode": "ReadWriteOnce"}},
        {"snapshots": {"path": "x"}},
        {"snapshots": {"enabled": False}, "resume": True},
        {"snapshots": {"enabled": False}, "outputs": "ck"},
        {"outputs": "/runs"},
        {"outputs": "a/../b"},
        {"outputs": "./"},
        {"outputs": "src", "command": ["src/train.py"]},
        {"nodes": "2:3", "procsPerNode": "2,4"},
        {"nodes": 3, "procsPerNode": "2,4"},
        {"nodes": 2, "procsPerNode": "2,4", "gpusPerNode": 2},
        {"nodes": 2, "procsPerNode": "2,4", "gpusPerNode": 1},
        {"resources": {"requests": {"amd.com/gpu": "1"}}, "gpuResource": "amd.com/gpu"},
        {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
        {"labels": {"app.kubernetes.io/name": "a", "kueue.x-k8s.io/priority-class": "b"}},
        {"annotations": {"kitctl.dev/user": "a"}},
        {"backend": "nccl"},
        {"metrics": {"enabled": True, "port": 29400}},
    ],
    ids=json.dumps,
)
def test_a_rules_message_is_that_of_kitctl(job: dict[str, Any]) -> None:
    assert kitctl_errors(job) <= set(refusal({"name": "job", **job}))


def test_every_reserved_name_is_known() -> None:
    reserved = [*variables.RESERVED_ENV, *(f"{prefix}X" for prefix in variables.RESERVED_ENV_PREFIXES)]
    job = {"env": dict.fromkeys(reserved, "")}
    assert len(kitctl_errors(job)) == len(reserved)
    assert kitctl_errors(job) <= set(refusal(job))


def test_switches_of_a_job_are_not_reserved() -> None:
    job = {"name": "job", "env": dict.fromkeys(variables.SWITCHES, "0")}
    assert specfile.build(JobRequest(flags=job)).env == job["env"]
    rendered(given=job)


def test_all_problems_are_reported_at_once() -> None:
    job = {"nodes": "4:2", "resume": True, "snapshots": {"enabled": False}, "backend": "nccl", "envFrom": [{}]}
    problems = kitctl_errors(job)
    assert len(problems) == 4
    assert problems <= set(refusal(job))


def test_the_longest_name_is_as_long_as_kitctl_s() -> None:
    rendered(given={"name": "a" * 61})
    rendered(given={"name": "a" * 48, "kind": "JobSet", "nodes": 3})
    rendered(given={"name": "a" * 53, "kind": "PyTorchJob", "nodes": 10})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nodes": "2:4", "scale": 3, "kind": "JobSet"}, "scale: the number of nodes of a JobSet cannot be changed"),
        ({"nodes": "2:4", "scale": 5}, "scale: 5 is outside nodes, 2:4; fix: give 2 to 4"),
        ({"nodes": "2:4", "scale": 1}, "scale: 1 is outside nodes, 2:4; fix: give 2 to 4"),
        ({"nodes": 3, "scale": 4}, "scale: 4 nodes are not the 3 of nodes, which is fixed; fix: leave scale out"),
        ({"command": ["a/b.py"]}, "command: a/b.py is not sent by the chart; fix: add --set-file "),
        ({"command": ["a/b.py"]}, "'sources.a/b\\.py=a/b.py'"),
        ({"workdir": "."}, "workdir: a chart cannot read the folder; fix: kitctl upload sends it"),
        ({"requirements": {"file": "r"}}, "requirements: a chart cannot read the file; fix: kitctl upload sends it"),
        (
            {"code": {"requirements": {"digest": "0" * 64}}, "snapshots": {"enabled": False}},
            "code.requirements: without configMap they are on the claim",
        ),
        ({"code": {"digest": "0" * 64}, "sources": {"a": "b"}}, "sources: the folder of code takes their place; fix: "),
        ({"code": {"digest": "0" * 64}, "snapshots": {"enabled": False}}, "code: without configMap the folder is on"),
        ({"send": ["lib"]}, "send: a chart cannot read the files; fix: add --set-file 'sources.PATH=FILE'"),
    ],
)
def test_the_charts_own_rules_name_the_field_and_the_fix(values: dict[str, Any], message: str) -> None:
    assert message in "\n".join(refusal(values))


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"polcy": {}}, "''", "'polcy' not allowed"),
        ({"policy": {"maxRestart": 1}}, "/policy", "'maxRestart' not allowed"),
        ({"volumes": [{"mountPath": "/x", "pvc": "a"}]}, "/volumes/0", "'pvc' not allowed"),
        ({"volumes": [{"claim": "data"}]}, "/volumes/0", "missing property 'mountPath'"),
        ({"nodes": "4:"}, "/nodes", "does not match pattern"),
        ({"kind": "Deployment"}, "/kind", "must be one of"),
        ({"env": {"A": 1}}, "/env/A", "got number, want string"),
        ({"env": {"A B": "1"}}, "''", "'A B' does not match pattern"),
        ({"scale": 0}, "/scale", "minimum"),
        ({"sharedMemory": None}, "''", "missing property 'sharedMemory'"),
        ({"policy": {"gracePeriod": None}}, "/policy", "missing property 'gracePeriod'"),
    ],
    ids=json.dumps,
)
def test_the_schema_names_values_of_a_wrong_type(values: dict[str, Any], field: str, message: str) -> None:
    output = "\n".join(refusal(values))
    assert field in output
    assert message in output
