"""What older versions accepted is accepted as it was meant, and nothing else is changed."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base import quantity
from kitctl.base.encoding import decode, encode
from kitctl.spec.job_spec import JobSpec
from kitjob import durations, older
from kitjob.sections import Policy, Resources, Snapshots, Volume


def test_a_job_without_units_is_what_it_was() -> None:
    written = (
        b'{"name": "job", "policy": {"deadline": "90", "ttl": "0", "hangTimeout": "off"}, "sharedMemory": "4",'
        b' "volumes": [{"emptyDir": "512m", "mountPath": "/scratch"}], "snapshots": {"every": "60", "size": "1000000"},'
        b' "resources": {"limits": {"cpu": "4", "memory": "0.5", "rdma/hca": "1"}}, "env": {"memory": "4"}}'
    )
    assert decode(written, JobSpec) == JobSpec(
        name="job",
        policy=Policy(deadline="90s", ttl="0", hang_timeout="off"),
        shared_memory="4e0",
        volumes=(Volume(empty_dir="512e-3", mount_path="/scratch"),),
        snapshots=Snapshots(every="60s", size="1000000"),
        resources=Resources(limits={"cpu": "4", "memory": "0.5e0", "rdma/hca": "1"}),
        env={"memory": "4"},
    )


@pytest.mark.parametrize("amount", ["4", "0.5", "512m", "7u", "9n", "0", "1000000", "4Gi", "1E", "1e3"])
def test_amounts_stay_equal(amount: str) -> None:
    told = older.upgraded(JobSpec, {"sharedMemory": amount})["sharedMemory"]
    assert quantity.amount(told) == pytest.approx(quantity.amount(amount), rel=1e-12)
    JobSpec(name="job", shared_memory=told)  # is allowed


@pytest.mark.parametrize("time", ["90", "0", "1h30m", "007"])
def test_times_stay_equal(time: str) -> None:
    told = older.upgraded(JobSpec, {"policy": {"gracePeriod": time}})["policy"]["gracePeriod"]
    assert durations.seconds(told) == durations.seconds(time)
    JobSpec(name="job", policy=Policy(grace_period=told))  # is allowed


@pytest.mark.parametrize(
    "job", [{"policy": "90"}, {"policy": {"deadline": 90}}, {"volumes": ["4"]}, {"deadline": "90"}]
)
def test_what_is_no_job_stays_as_it_is(job: dict[str, Any]) -> None:
    assert older.upgraded(JobSpec, job) == job


def test_a_job_of_this_version_stays_as_it_is() -> None:
    job = JobSpec(name="job", policy=Policy(deadline="1h", ttl="0"), resources=Resources(requests={"memory": "4Gi"}))
    assert decode(encode(job), JobSpec) == job
