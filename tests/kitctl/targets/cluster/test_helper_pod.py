"""The short-lived helper pod that mounts a claim: fields that it copies from the job's pods, and its requests."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl import names, render
from kitctl.sections import Resources
from kitctl.spec import JobSpec
from kitctl.targets.cluster import helper_pod


def spec_of(**fields: Any) -> dict[str, Any]:
    job = render.manifests(JobSpec(name="run", **fields))[-1]
    pod: dict[str, Any] = helper_pod.manifest(job, call="0123456789")
    assert pod["metadata"]["annotations"] == {names.ANNOTATION_SUBMIT: "0123456789"}
    spec: dict[str, Any] = pod["spec"]
    return spec


def test_the_helper_uses_the_jobs_pull_secrets() -> None:
    assert spec_of(image_pull_secrets=("registry",))["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Resources(), {"requests": {"cpu": "100m", "memory": "512Mi"}}),
        (
            Resources(requests={"cpu": "8", "memory": "64Gi", "rdma/hca": "1"}, limits={"memory": "64Gi"}),
            {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "64Gi"}},
        ),
        (
            Resources(requests={"memory": "128Mi"}, limits={"cpu": "50m"}),
            {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "50m"}},
        ),
    ],
)
def test_the_helper_requests_little_and_no_gpu(given: Resources, expected: dict[str, Any]) -> None:
    (container,) = spec_of(resources=given, gpus_per_node=4)["containers"]
    assert container["resources"] == expected, "and for no GPU"
