"""Local nodes are forked from a process that has imported torch, as long as that process lives."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

TOY = ["-m", "kittrain.workloads.toy", "100", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]


@pytest.fixture(scope="module")
def fork_server_environ() -> dict[str, str]:
    """These jobs import torch themselves: no warm process of the tests."""
    return {}


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_lost_nodes_are_forked_again_and_start_cold_once_the_server_is_lost(kit: Kit) -> None:
    kit.run("submit", "--name", "forked", "--nodes", "2", "--snapshot-every", "20", *TOY)
    first = started(kit, 1, attempt=1)
    server = parent(parent(first))
    assert "kittrain.agent.forkserver" in command(server)

    os.killpg(first, signal.SIGKILL)
    second = started(kit, 1, attempt=2)
    assert parent(parent(second)) == server

    os.kill(parent(second), signal.SIGKILL)  # its shim: the agent must not inherit the node's lock
    third = started(kit, 1, attempt=3)
    assert parent(parent(third)) == server

    os.kill(server, signal.SIGKILL)
    os.killpg(third, signal.SIGKILL)
    assert "kittrain.agent" in command(started(kit, 1, attempt=4))
    assert "no fork server" in (kit.job("forked").path / "supervisor.log").read_text()
    assert kit.job("forked").node(0).attempts == 1, "no other node is restarted"
    kit.until("forked", lambda job: job["phase"] == "Running" and job["progress"]["step"])
    kit.run("cancel", "forked")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_is_cancelled_before_the_server_is_ready_ends_at_once(kit: Kit) -> None:
    kit.run("submit", "--name", "hasty", "--nodes", "2", *TOY)
    kit.run("cancel", "hasty")
    assert kit.status("hasty")["phase"] == "Cancelled"
    assert not kit.job("hasty").nodes()


def started(kit: Kit, index: int, *, attempt: int) -> int:
    """The process id of a node's agent, once this attempt runs."""
    node = kit.job("forked").node(index)
    kit.until("forked", lambda _: node.started(attempt) and node.alive())
    return kit.agent("forked", index)


def parent(pid: int) -> int:
    """A process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command(pid: int) -> str:
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
