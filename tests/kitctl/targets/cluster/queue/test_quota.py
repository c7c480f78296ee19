"""Whether a ClusterQueue could ever admit a job."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.targets.cluster.queue import quota

Object = dict[str, Any]


def flavor(name: str = "default", **resources: Any) -> Object:
    """A flavor's quota: ``cpu=4``, or ``cpu={"nominalQuota": 4, "borrowingLimit": 1}``."""
    quotas = [
        {"name": key} | (value if isinstance(value, dict) else {"nominalQuota": value})
        for key, value in resources.items()
    ]
    return {"name": name, "resources": quotas}


def queue(*flavors: Object, **spec: Any) -> Object:
    covered = [one["name"] for one in flavors[0]["resources"]] if flavors else []
    groups = [{"coveredResources": covered, "flavors": [*flavors]}] if flavors else None
    return {"metadata": {"name": "main"}, "spec": {"resourceGroups": groups} | spec}


POD = {"cpu": 1.0, "memory": 2.0**30}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (queue(flavor(cpu="2", memory="2Gi")), []),
        (queue(flavor(cpu="1900m", memory="2Gi")), ["cpu: 2 needed, at most 1.9"]),
        (queue(flavor(cpu=1, memory="1Gi")), ["cpu: 2 needed, at most 1; memory: 2 GiB needed, at most 1 GiB"]),
        (queue(flavor(cpu="2")), ["it has no quota of memory"]),
        (queue(), ["it has no quota of cpu", "it has no quota of memory"]),
        (queue(flavor("a", cpu=1, memory="9Gi"), flavor("b", cpu=2, memory="2Gi")), []),
        (
            queue(flavor("a", cpu=2, memory="1Gi"), flavor("b", cpu=1, memory="2Gi")),
            ["no flavor has enough of all of cpu, memory"],
        ),
        (queue(flavor(cpu=9, memory="9Gi", pods=1)), ["pods: 2 needed, at most 1"]),
        (queue(flavor(cpu=0, memory="9Gi"), cohort="all"), ["cpu: 2 needed, at most 1"]),
        (queue(flavor(cpu=1, memory="9Gi"), cohortName="all"), []),
        (
            queue(flavor(cpu={"nominalQuota": 1, "borrowingLimit": "500m"}, memory="9Gi"), cohortName="all"),
            ["cpu: 2 needed, at most 1.5"],
        ),
    ],
)
def test_a_queue_admits_what_fits_into_one_flavor(given: Object, found: list[str]) -> None:
    others = [queue(flavor("default", cpu={"nominalQuota": 5, "lendingLimit": 1}), flavor("b", cpu=7), cohort="all")]
    assert list(quota.obstacles(given, others, POD, 2)) == found


def test_a_cohort_that_is_not_known_forbids_nothing() -> None:
    assert list(quota.obstacles(queue(flavor(cpu=0, memory=0), cohort="all"), None, POD, 2)) == []


def test_pods_are_counted_as_the_scheduler_counts_them() -> None:
    def container(cpu: str, **more: Any) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}} | more

    limited = {"resources": {"limits": {"memory": "1Gi", "cpu": "9"}, "requests": {"cpu": "1"}}}
    spec = {
        "containers": [limited, container("500m")],
        "initContainers": [container("3"), container("1", restartPolicy="Always"), container("2")],
        "overhead": {"cpu": "250m"},
    }
    assert quota.pod_requests({"spec": spec}) == {"cpu": 3.25, "memory": 2.0**30}
    assert quota.pod_requests({"spec": {"containers": [{}]}}) == {}
