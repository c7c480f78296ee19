"""TrainJob: requirements for its runtime, options that it rejects, and the status of handwritten ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import kitctl
from kitctl.base.errors import SpecError
from kitctl.code.code_tree import Sources
from kitctl.kinds.job_set import SET_NAME
from kitctl.kinds.train_job import TrainJob
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob.pod_section import Pod
from kitjob.sections import EnvSource, Policy, Scheduling

PLATFORM = Path(__file__).parents[3] / "charts" / "platform"
KIND = TrainJob()


def plain(**trainer: Any) -> dict[str, Any]:
    return {"metadata": {"name": "plain"}, "spec": {"runtimeRef": {"name": "kitctl"}, "trainer": trainer}}


def problems(**fields: Any) -> set[str]:
    with pytest.raises(SpecError) as caught:
        render.manifests(JobSpec(name="job", kind="TrainJob", **fields))
    return {problem.partition(":")[0] for problem in caught.value.problems}


def test_all_options_that_the_runtime_sets_are_rejected_together_by_key() -> None:
    policy = Policy(backoff_limit=3, ttl="1h", grace_period="5m")
    scheduling = Scheduling(priority_class="high", scheduler="volcano")
    given = {"policy": policy, "scheduling": scheduling, "env_from": (EnvSource(secret="tokens"),)}
    assert problems(**given) == {
        *("policy.backoffLimit", "policy.ttl", "policy.gracePeriod"),
        *("scheduling.priorityClass", "scheduling.scheduler", "envFrom"),
    }


def test_pod_additions_that_a_patch_cannot_express_are_rejected() -> None:
    sidecar = {"name": "side", "image": "side"}
    assert problems(pod=Pod(sidecars=(sidecar,), host_network=True)) == {
        *("pod.spec.initContainers", "pod.spec.hostNetwork", "pod.spec.dnsPolicy"),
    }
    probe = {"name": "pytorch", "startupProbe": {"exec": {"command": ["true"]}}}
    assert problems(pod=Pod(spec={"containers": [probe]})) == {"pod.spec.containers[pytorch].startupProbe"}


def test_pod_additions_that_a_patch_can_express_are_in_it() -> None:
    pod = Pod(labels={"team": "vision"}, spec={"volumes": [{"name": "big", "emptyDir": {}}]})
    template = KIND.pod_template(render.manifests(JobSpec(name="job", kind="TrainJob", pod=pod))[-1])
    assert template["metadata"]["labels"]["team"] == "vision"
    assert {"name": "big", "emptyDir": {}} in template["spec"]["volumes"]


def test_a_deadline_is_a_field_of_the_job() -> None:
    job = render.manifests(JobSpec(name="job", kind="TrainJob", policy=Policy(deadline="1h")))[-1]
    assert job["spec"]["activeDeadlineSeconds"] == 3600


def test_a_job_with_files_runs_in_their_folder() -> None:
    spec = JobSpec(name="job", kind="TrainJob", command=("train.py",))
    args = render.manifests(spec, Sources(files={"train.py": "x"}))[-1]["spec"]["trainer"]["args"]
    assert args[:4] == ["env", "-C", "/workspace", "python"]


@pytest.mark.parametrize(
    ("trainer", "nodes"),
    [
        ({}, "1"),
        ({"numNodes": 3}, "3"),
        ({"numNodes": 3, "env": [{"name": "KIT_NODES", "value": "2:3"}]}, "2:3"),
        ({"numNodes": 3, "env": [{"name": "KIT_NODES", "value": "two"}]}, "3"),
        ({"numNodes": 3, "env": [{"name": "KIT_SPEC", "value": json.dumps({"min_nodes": 1})}]}, "1:3"),
    ],
)
def test_the_node_range_of_a_handwritten_job(trainer: dict[str, Any], nodes: str) -> None:
    assert KIND.nodes(plain(**trainer)) == nodes


def test_metrics_that_are_not_numbers_are_omitted() -> None:
    metrics = [{"name": "step", "value": "3"}, {"name": "note", "value": "warm"}, {"name": "f1", "value": "0.5"}]
    job = plain() | {"status": {"trainerStatus": {"metrics": metrics}}}
    assert KIND.progress(job)["progress"] == {"step": 3, "etaSeconds": None, "metrics": {"f1": 0.5}}
    assert KIND.progress(plain()) == {}
    assert KIND.progress(plain() | {"status": {"trainerStatus": {"metrics": metrics[1:]}}}) == {}, "another trainer's"


def test_a_pod_belongs_to_a_job_only_if_it_is_younger() -> None:
    job = plain()
    job["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    labels = {SET_NAME: "plain"}
    earlier, own, other = (
        {"metadata": {"labels": labels, "creationTimestamp": "2026-01-01T00:00:09Z"}},
        {"metadata": {"labels": labels, "creationTimestamp": "2026-01-01T00:00:10Z"}},
        {"metadata": {"labels": {}, "creationTimestamp": "2026-01-01T00:00:11Z"}},
    )
    assert [KIND.owns_pod(job, pod) for pod in (earlier, own, other)] == [False, True, False]


def test_the_platform_chart_has_the_trainer_image_of_this_version() -> None:
    values = yaml.safe_load((PLATFORM / "values.yaml").read_text())
    assert values["image"] == f"kitctl/trainer:{kitctl.__version__}"
