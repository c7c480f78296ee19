"""A job that asks for what it cannot have is told before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.spec.job_spec import JobSpec
from kitctl.spec.remarks import remarks
from kitjob.sections import Policy, Snapshots

LIVE = Policy(survivors="live")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gpus_per_node": 2}, "it is for gloo on CPUs"),
        ({"gpus_per_node": 2, "backend": "gloo"}, "it is for gloo on CPUs"),
        ({"snapshots": Snapshots(memory_every_steps=5)}, "snapshots.memoryEverySteps excludes it"),
    ],
)
def test_survivors_that_cannot_live_on(settings: dict[str, Any], why: str) -> None:
    (line,) = remarks(JobSpec(name="job", policy=LIVE, **settings))
    assert line == f"policy.survivors: live has no effect, and all ranks are restarted when one is lost: {why}"
    assert not list(remarks(JobSpec(name="job", **settings)))


def test_what_depends_on_the_script_is_not_told() -> None:
    assert not list(remarks(JobSpec(name="job", policy=LIVE)))
