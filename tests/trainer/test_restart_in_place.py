"""Agents that are killed in their pod are started again there, and training continues."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from kittrain.agent.fault_injection import processes
from kittrain.helper import log_copies
from tests.trainer.nodes import SCRIPTS, Nodes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="pods run Linux")]


def test_a_killed_agent_is_succeeded_by_its_zygote_on_any_node(tmp_path: Path) -> None:
    with nodes_in_pods(tmp_path) as nodes:
        nodes.start(0, 1)
        nodes.until(0, "world of 2")
        for turn, index in enumerate((1, 1, 0), start=2):
            successor = zygote(agent(nodes, index))
            os.kill(agent(nodes, index), signal.SIGKILL)
            nodes.until(0, "world of 2", times=turn)
            assert agent(nodes, index) == successor
        nodes.until_true(lambda: len(nodes.report()["nodes"]) == 2, "report")
        assignments = nodes.report()["nodes"]
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        output = nodes.output(1)
    assert [assignments[index]["agent_restarts"] for index in "01"] == [1, 2]
    assert assignments["1"]["restart_cause"] == "the agent was killed by SIGKILL"
    assert "[agent 1]: started again in place, restart 2: the agent was killed by SIGKILL" in output
    assert nodes.end(1)["outcome"] == "done"
    (run,) = [run for run in log_copies.agent_runs(tmp_path / "logs") if run.node == 1]
    copied = b"".join(log_copies.lines(tmp_path / "logs", [run]))
    assert copied.count(b"started again in place") == 2
    assert copied.endswith(b"[agent 1]: done: all ranks succeeded\n")


@pytest.mark.wide
def test_without_a_zygote_a_new_agent_imports_torch(tmp_path: Path) -> None:
    with nodes_in_pods(tmp_path, nodes="1", KIT_WARM_WORKERS="0") as nodes:
        nodes.start(0)
        nodes.until(0, "world of 1")
        os.kill(agent(nodes, 0), signal.SIGKILL)
        nodes.until(0, "world of 1", times=2)
        nodes.finish()
        assert nodes.wait(0) == 0


def test_a_drained_node_ends_its_pod(tmp_path: Path) -> None:
    with nodes_in_pods(tmp_path, nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "world of 1")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        assert "drained at step" in nodes.output(0)
        assert nodes.end(0)["outcome"] == "drained"
        assert "started again" not in nodes.output(0)


def nodes_in_pods(folder: Path, nodes: str = "2", **env: str) -> Nodes:
    """Nodes whose agents have a supervisor, as in a pod."""
    command = str(SCRIPTS / "steps.py")
    return Nodes(folder, command, nodes=nodes, KIT_RESTART_IN_PLACE="1", KIT_LOG_DIR=str(folder / "logs"), **env)


def agent(nodes: Nodes, index: int) -> int:
    """The process id of a node's agent; that of the node is its supervisor's."""
    (found,) = (one.pid for one in processes() if one.is_agent and one.parent == nodes.pid(index))
    return found


def zygote(parent: int) -> int:
    """The process id of an agent's zygote."""
    (found,) = (one.pid for one in processes() if one.parent == parent and one.is_agent and one.session != one.pid)
    return found
