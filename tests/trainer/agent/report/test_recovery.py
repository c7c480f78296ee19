"""The job recovers from nodes that are killed, drained or late."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kitjob.report import Progress
from tests.trainer import clocks
from tests.trainer.nodes import SCRIPTS, ColdNodes, Nodes
from tests.trainer.reports import plain

pytestmark = pytest.mark.slow

STEPS = str(SCRIPTS / "steps.py")


def test_killed_nodes_rejoin_and_the_budget_is_not_charged(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1)
        for times, lost in enumerate((1, 0), start=1):  # node 0 hosts the rendezvous store
            nodes.until(0, "world of 2", times=times)
            nodes.until(1, "world of 2", times=times)
            nodes.kill(lost)
            nodes.start(lost)
        nodes.until(0, "world of 2", times=3)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        report = nodes.report()
        last = max(int(entry.name[5:13]) for entry in nodes.snapshots.glob("step-*"))
        assert nodes.everything().count(f"finished at step {last}") == 2
    assert report["round"] == 3
    assert report["progress"] == plain(Progress(step=last))


def test_an_elastic_job_grows_and_shrinks_without_losing_a_step(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, nodes="1:2", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0)
        nodes.until(0, "world of 1")
        nodes.start(1)
        nodes.until(1, "world of 2")
        nodes.until(0, "world of 2")
        nodes.signal(1, signal.SIGTERM)
        nodes.signal(1, signal.SIGTERM)  # a second signal has no effect
        assert nodes.wait(1) == 75
        assert nodes.end(1)["outcome"] == "drained"
        nodes.until(0, "world of 1", times=2)
        nodes.finish()
        assert nodes.wait(0) == 0
        steps = [line.split()[-1] for line in nodes.everything().splitlines() if "drained at" in line]
    assert len(steps) == 3  # rank 0 alone when node 1 joined, then both
    assert len(set(steps)) == 2


@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_survivor_continues_alone_and_the_lost_node_rejoins(tmp_path: Path, lost: int) -> None:
    survivor = 1 - lost
    start = Nodes if lost else ColdNodes  # node 0 must not rejoin before the survivor has run alone
    with start(tmp_path, STEPS, nodes="1:2", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1)
        nodes.until(survivor, "world of 2")
        nodes.kill(lost)
        if lost != 0:
            nodes.until(survivor, "world of 1")
        nodes.start(lost)
        nodes.until(survivor, "world of 1")  # if node 0 was lost, as soon as its hub is up
        nodes.until(survivor, "world of 2", times=2)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]


def test_node_0_exits_with_its_hub_so_that_both_are_restarted(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "world of 1")
        os.kill(hub_of(nodes.pid(0)), signal.SIGKILL)
        assert nodes.wait(0) == 76


def hub_of(agent: int) -> int:
    """The process id of the hub."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    (hub,) = (
        int(pid) for pid in children if b"kittrain.agent.rendezvous\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return hub


def test_a_script_without_drain_support_is_drained(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time\nprint('asleep')\ntime.sleep(600)\n")
    with Nodes(tmp_path, str(script), nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "asleep")
        nodes.signal(0, signal.SIGINT)
        assert nodes.wait(0) == 75


def test_ranks_die_with_a_killed_agent(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import os, time\nprint('asleep as', os.getpid())\ntime.sleep(600)\n")
    with Nodes(tmp_path, str(script), nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "asleep as")
        rank = int(nodes.output(0).split()[-1])
        nodes.kill(0)
        nodes.until_true(lambda: not Path(f"/proc/{rank}/cmdline").exists(), "end of the rank")


def test_sigterm_ends_a_wait_for_other_nodes(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS) as nodes:
        nodes.start(0)
        nodes.until(0, "node 0 of 2")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        nodes.start(1)
        nodes.until(1, "waiting for node 0")
        nodes.signal(1, signal.SIGTERM)
        assert nodes.wait(1) == 75


def test_missing_nodes_end_as_retryable(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, PET_RDZV_CONF="join_timeout=1") as nodes:
        nodes.start(1)
        assert nodes.wait(1) == 76
        assert f"node 0 cannot be reached at 127.0.0.1:{nodes.port}" in nodes.end(1)["reason"]


def test_a_drain_before_the_first_step_blocks_no_other_node(tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    script.write_text(
        "import os, signal, time\n"
        "from kittrain import join\n"
        "if os.environ['LOCAL_RANK'] == '1':\n"
        "    signal.signal(signal.SIGTERM, lambda *_: print('noted'))\n"  # as the loop does; but it never gets to agree
        "with join() as world:\n"
        "    print('world of', world.size)\n"
        "    if os.environ['KIT_NODE_INDEX'] == '1':\n"
        "        time.sleep(600)\n"
        "    world.barrier()\n"
    )
    with Nodes(tmp_path, str(script), nodes="1:2", PET_MAX_RESTARTS="0", KIT_POLICY_GRACE_PERIOD="600") as nodes:
        nodes.start(0)
        nodes.start(1, PET_NPROC_PER_NODE="2")
        nodes.until(1, "world of 3", times=2)
        nodes.signal(1, signal.SIGTERM)
        assert [nodes.wait(1), nodes.wait(0)] == [75, 0]
        assert "world of 1" in nodes.output(0)
        assert nodes.report()["last_recovery"] is None  # no step was taken


@pytest.mark.wide
@pytest.mark.skipif(not clocks.AVAILABLE, reason="needs the package libfaketime")
def test_clocks_that_differ_by_minutes_do_no_harm(tmp_path: Path) -> None:
    with Nodes(tmp_path, STEPS, nodes="2", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0)
        nodes.start(1, **clocks.ahead(60))
        nodes.until(0, "world of 2")
        formed = nodes.report()
        assert formed["nodes"]["1"]["joined"] - formed["formed"] > 30, "the clocks do not differ"
        nodes.kill(1)
        nodes.start(1, **clocks.ahead(-60))  # its agent is the younger one by any clock except its own
        nodes.until(0, "world of 2", times=2)
        nodes.kill(0)
        nodes.start(0)
        nodes.until(0, "world of 2", times=3)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        assert nodes.report()["round"] == 3


def test_a_failure_that_the_job_has_recovered_from_is_no_cause_of_what_comes_later(tmp_path: Path) -> None:
    toy = ["-m", "kittrain.workloads.toy", "1000", "--samples", "512", "--batch_size", "16", "--step-time", "0.02"]
    with Nodes(tmp_path, *toy, nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "epoch 1/1000 done")
        (rank,) = nodes.ranks(0)
        os.kill(rank, signal.SIGKILL)
        nodes.until(0, "restart 1 of")
        nodes.until_true(lambda: not (tmp_path / "end-0.json").read_bytes(), "end of what the message says")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        assert nodes.end(0)["outcome"] == "drained"
