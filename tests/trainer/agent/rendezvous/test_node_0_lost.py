"""Node 0, where the nodes have met, is lost: the others meet at the next one, and it finds them when it is back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.trainer.nodes import SCRIPTS, Nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS = str(SCRIPTS / "steps.py")


@pytest.mark.wide
def test_the_others_go_on_without_node_0_which_joins_them_again(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, nodes="2:3", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1, 2)
        for index in range(3):
            nodes.until(index, "world of 3")
        nodes.kill(0)
        nodes.until(1, "world of 2")
        nodes.until(2, "world of 2")
        nodes.start(0)
        for index in (0, 2):
            nodes.until(index, "world of 3", times=2)
        nodes.kill(2)
        nodes.until(0, "world of 2")
        nodes.start(2)  # it asks node 0, whose hub does not serve
        nodes.until(2, "world of 3", times=3)
        nodes.finish()
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]


def test_one_hub_after_the_other_is_lost(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, nodes="1:3", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1, 2)
        nodes.until(2, "world of 3")
        nodes.kill(0)
        nodes.until(2, "world of 2")
        nodes.kill(1)
        nodes.until(2, "world of 1")
        nodes.start(0, 1)
        nodes.until(2, "world of 3", times=2)
        nodes.finish()
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]


def test_a_spare_takes_the_ranks_of_node_0(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, nodes="2", KIT_SPARES="1", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1, 2)
        nodes.until(2, "stands by")
        nodes.until(1, "world of 2")
        nodes.kill(0)
        nodes.until(2, "[rank 0]: world of 2")
        nodes.start(0)
        nodes.until(0, "stands by")
        nodes.finish()
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]


def test_the_others_tell_that_node_0_is_lost(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1)
        for index in (0, 1):
            nodes.until(index, "world of 2")
        nodes.until_true(lambda: bool(nodes.report()["nodes"]), "report")
        nodes.kill(0)
        nodes.until_true(lambda: bool(nodes.report()["forming"]), "report of the loss")
        assert nodes.report()["ended_by"] == "node 0 is lost: the connection was closed"
        nodes.start(0)
        nodes.until(0, "world of 2", times=2)
        nodes.until_true(lambda: not nodes.report()["forming"], "report of the next round")
        nodes.finish()
        assert [nodes.wait(index) for index in range(2)] == [0, 0]


@pytest.mark.parametrize("drained", [0, 1])
def test_a_drained_node_costs_one_round_whether_the_others_meet_at_it_or_not(tmp_path: Path, drained: int) -> None:
    with Nodes(tmp_path, STEPS, nodes="2", KIT_SPARES="1", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1, 2)
        nodes.until(2, "stands by")
        nodes.until(drained, "world of 2")
        nodes.signal(drained, signal.SIGTERM)
        assert nodes.wait(drained) == 75
        nodes.until(2, f"[rank {drained}]: world of 2")
        nodes.start(drained)
        nodes.until(drained, "stands by")
        nodes.finish()
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]
        assert [nodes.output(index).count("world of") for index in (1 - drained, 2)] == [2, 1], nodes.everything()
