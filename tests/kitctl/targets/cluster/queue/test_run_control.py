"""Stopping and starting a job that is in no queue: by its own fields."""

from __future__ import annotations

from typing import Final

import pytest

from kitctl.base import names
from kitctl.kinds import KINDS
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

JOB: Final = Key("jobs.batch", "default", "run")
JOBS: Final = {"IndexedJob": "jobs.batch", "PyTorchJob": "pytorchjobs", "JobSet": "jobsets"}


def test_scaling_a_job_of_a_release_says_that_an_upgrade_undoes_it(server: ApiServer, kit: Kit) -> None:
    kit.submit(nodes="1:3")
    assert "Helm" not in kit("scale", "run", "--nodes", "2")
    key = Key(JOBS["IndexedJob"], "default", "run")
    server.store.objects[key]["metadata"]["labels"][names.LABEL_MANAGED_BY] = "Helm"
    output = kit("scale", "run", "--nodes", "2")
    assert "its next upgrade sets the number of nodes to its value scale; give it --set scale=2" in output


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


@pytest.mark.parametrize("command", [("resume",), ("suspend",), ("restart",), ("cancel",), ("scale", "--nodes", "2")])
def test_a_job_that_is_being_deleted_is_not_changed(server: ApiServer, kit: Kit, command: tuple[str, ...]) -> None:
    kit.submit(nodes="1:3")
    server.store.objects[JOB]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    before = server.written()
    output = kit(command[0], "run", *command[1:], exit_code=2)
    assert "'run' is being deleted\nfix: kitctl why run " in output
    assert server.written() == before


def test_a_job_that_reports_to_a_config_map_that_is_gone_gets_it_again(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    key = Key("configmaps", "default", "run-status")
    made = server.store.get(key)["metadata"]
    server.store.remove(key)
    assert "the ConfigMap run-status was gone, and is made anew" in kit("resume", "run")
    again = server.store.get(key)["metadata"]
    assert [again[part] for part in ("labels", "ownerReferences")] == [made["labels"], made["ownerReferences"]]
    assert "made anew" not in kit("resume", "run")
