"""kitctl and the chart render equal pods for the recipes of docs/fabrics.md and for overlays of all kinds."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kitctl.base.errors import SpecError
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from tests.charts.helm import alike, manifests, refusal, rendered
from tests.recipes import RECIPES

MAIN = "pytorch"


@pytest.mark.parametrize("kind", ["IndexedJob", "PyTorchJob"])
@pytest.mark.parametrize("name", RECIPES)
def test_kitctl_and_the_chart_give_equal_pods(name: str, kind: str) -> None:
    job = {"name": "digits", "kind": kind, **yaml.safe_load(RECIPES[name])}
    spec = specfile.build(JobRequest(flags=job))
    assert alike(rendered(given=job)) == alike(manifests(spec))


@pytest.mark.parametrize(
    "pod",
    [
        {"spec": {"terminationGracePeriodSeconds": 5}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        {"spec": {"containers": [{"name": MAIN, "env": [{"name": "PYTHONUNBUFFERED", "value": "0"}]}]}},
        {"spec": {"containers": [{"name": MAIN, "volumeMounts": [{"mountPath": "/snapshots", "name": "x"}]}]}},
        {"spec": {"containers": [{"name": MAIN}]}},
        {"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/a"}}, {"name": "x", "hostPath": {"path": "/b"}}]}},
        {"labels": {"app.kubernetes.io/name": "x"}},
        {"hostNetwork": True, "spec": {"dnsPolicy": "Default"}},
    ],
    ids=str,
)
def test_both_reject_a_field_that_is_already_set_and_name_it(pod: dict[str, Any]) -> None:
    job = {"name": "job", "pod": pod}
    with pytest.raises(SpecError) as caught:
        manifests(specfile.build(JobRequest(flags=job)))
    (problem,) = caught.value.problems
    field = problem.partition(": ")[0]
    assert [line for line in refusal(job) if f"{field}: is set already" in line]


@pytest.mark.parametrize(
    "pod",
    [
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"shareProcessNamespace": True}},
        {"spec": {"ephemeralContainers": []}},
        {"spec": {"containers": [{"name": MAIN, "lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}]}},
        {"spec": {"containers": [{"name": "trainer"}]}},
        {"spec": {"containers": [{"name": MAIN, "args": ["x"]}]}},
        {"spec": {"containers": [{"name": MAIN, "env": [{"name": "KIT_SPEC", "value": "{}"}]}]}},
        {"resourceClaims": [{"name": "a"}]},
        {"sidecars": [{"name": "a"}]},
    ],
    ids=str,
)
def test_reserved_fields_are_rejected_with_kitctls_message(pod: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        specfile.build(JobRequest(flags={"name": "job", "pod": pod}))
    assert {str(problem) for problem in caught.value.problems} <= set(refusal({"name": "job", "pod": pod}))


def test_what_changes_nothing_or_takes_less_of_the_host_is_passed_on() -> None:
    container = {"name": MAIN, "lifecycle": {}, "livenessProbe": {"exec": {"command": ["true"]}}}
    pod = {"spec": {"shareProcessNamespace": False, "hostUsers": False, "containers": [container]}}
    job = {"name": "job", "pod": pod}
    assert alike(rendered(given=job)) == alike(manifests(specfile.build(JobRequest(flags=job))))
