"""``policy.grow``: whether and when an elastic job takes a node that comes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.local.test_lifecycle import TOY, trains

if TYPE_CHECKING:
    from tests.local.conftest import Kit

# The first round waits for both, however long one takes to start.
SETTINGS = ("--set", "policy.grow=never", "--set", "rendezvous.lastCall=120s")


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_never_grows_lets_a_later_node_stand_by_until_it_is_started_again(kit: Kit) -> None:
    kit.run("submit", "--name", "same", "--nodes", "1:2", *SETTINGS, *TOY)
    trains(kit, "same", ranks=2)
    kit.run("scale", "same", "--nodes", "1")
    trains(kit, "same", ranks=1)
    assert "policy.grow is never" in kit.run("scale", "same", "--nodes", "2")
    job = kit.until("same", lambda job: job["spares"] == [1])
    reached = job["progress"]["step"] or 0
    job = kit.until("same", lambda job: (job["progress"]["step"] or 0) > reached + 20)
    assert (job["worldSize"], job["nodes"][1]["state"]) == (1, "Spare")
    kit.run("suspend", "same")
    kit.run("resume", "same")
    trains(kit, "same", ranks=2, after=reached)
