"""Stopping and starting a job that is in no queue: by its own fields."""

from __future__ import annotations

from typing import Final

import pytest

from kitctl.kinds import KINDS
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

JOBS: Final = {"IndexedJob": "jobs.batch", "PyTorchJob": "pytorchjobs", "JobSet": "jobsets"}


@pytest.mark.parametrize("kind", JOBS)
def test_a_stopped_job_is_started_again(server: ApiServer, kit: Kit, kind: str) -> None:
    kit.submit(kind=kind)

    def suspended() -> bool:
        return KINDS[kind].suspended(server.store.get(Key(JOBS[kind], "default", "run")))

    for stop, start in (("suspend", "resume"), ("suspend", "restart"), ("cancel", "restart")):
        kit(stop, "run")
        assert suspended(), stop
        kit(start, "run")
        assert not suspended(), (stop, start)
    assert "Cancelled" not in kit("status", "run")
