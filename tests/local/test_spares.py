"""A node that stands by takes the place of a lost one: at a fixed size, at once, and each sample is counted once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

TOY = ["-m", "kittrain.workloads.toy", "12", "--samples", "512", "--batch_size", "16", "--step-time", "0.02"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_spare_replaces_a_lost_node_which_then_is_the_spare(kit: Kit) -> None:
    kit.run("submit", "--name", "guarded", "--nodes", "2+1", "--snapshot-every", "20", "--", *TOY)
    job = kit.until("guarded", lambda job: len(job["spares"]) == 1 and (job["progress"]["step"] or 0) > 25)
    assert (job["phase"], job["nodeRange"], job["readyNodes"], job["worldSize"]) == ("Running", "2+1", 2, 2)
    (spare,) = job["spares"]  # whichever came last
    stay, lost = (index for index in range(3) if index != spare)
    assert [job["nodes"][index]["ranks"] for index in (stay, lost, spare)] == [[0], [1], []]
    assert [job["nodes"][index]["state"] for index in (stay, lost, spare)] == ["Running", "Running", "Spare"]
    assert "2 of 2 up, 1 of 1 spare ready, 2 ranks" in kit.read("status", "guarded")

    kit.kill("guarded", lost)
    job = kit.until("guarded", lambda job: job["spares"] == [lost] and job["lastRecovery"])
    assert sorted(job["nodes"][index]["ranks"] for index in (stay, spare)) == [[0], [1]]
    cause = job["lastRecovery"]["cause"]
    assert f"node {lost}" in cause or "rank 0 lost its peers" in cause  # whichever is noticed first

    kit.run("wait", "guarded")
    job = kit.status("guarded")
    assert [one["state"] for one in job["nodes"]] == ["Done", "Done", "Done"]
    assert job["progress"]["step"] == job["progress"]["totalSteps"]
    assert "exactly once" in kit.run("audit", "guarded")
    account = json.loads(kit.read("goodput", "guarded", "-o", "json"))
    spent = {one["name"]: one["seconds"] for one in account["buckets"]}
    assert spent["spare"] > 0
    assert account["unknownSeconds"] <= max(0.5, 0.005 * account["nodeSeconds"])
