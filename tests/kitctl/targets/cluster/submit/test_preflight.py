"""What a submission to a cluster is refused for, before anything is created."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base.errors import UsageError
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.submit import preflight
from kitjob.sections import Snapshots


def job(**changes: Any) -> JobSpec:
    return JobSpec(name="run", command=("train.py",), resume=True, snapshots=Snapshots(**changes))


def test_nothing_is_resumed_from_volumes_that_are_gone() -> None:
    with pytest.raises(UsageError, match="an earlier run's snapshots went with its pods") as error:
        preflight.check_resume(job(storage="perNode"))
    assert "--continue s3://BUCKET/PREFIX" in (error.value.fix or "")


@pytest.mark.parametrize("changes", [{}, {"storage": "perNode", "mirror": "s3://bucket/run"}])
def test_a_claim_and_a_mirror_outlive_a_job(changes: dict[str, Any]) -> None:
    preflight.check_resume(job(**changes))
