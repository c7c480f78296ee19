"""Whole jobs whose ranks hang: it is detected, the cause is named, and every sample counts exactly once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kittrain.rank.world.order import Order
from tests.exact import assert_each_sample_counts_once
from tests.trainer.nodes import SCRIPTS, Nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="signals to stop processes are Linux' here"),
]

ORDER = Order(samples=128, batch=16, seed=3)


def hanging(folder: Path, fault: str, **env: str) -> Nodes:
    """A job of ``scripts/hanging.py`` on two nodes, one of them with two ranks."""
    settings = {
        "HANG": fault,
        "RECORDS": str(folder / "records"),
        "KIT_POLICY_HANG_TIMEOUT": "4",
        "PET_MAX_RESTARTS": "1",
    }
    return Nodes(folder, str(SCRIPTS / "hanging.py"), **settings | env)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("data", "rank 1 (node 1, pod local-1) has been in data loading of step 1"),
        pytest.param(
            "start",
            "rank 1 (node 1, pod local-1) has been stopped (by SIGSTOP, or a debugger) in preparing to train",
            marks=pytest.mark.wide,
        ),
        ("skip", "rank 1 (node 1, pod local-1) has been in the gradients' all-reduce of step 13 for "),
        pytest.param(
            "compute",
            "rank 1 (node 1, pod local-1) has been in the forward pass of step 13 for ",
            marks=pytest.mark.wide,
        ),
    ],
)
def test_the_rank_that_hangs_is_named_and_the_run_continues(tmp_path: Path, fault: str, cause: str) -> None:
    with hanging(tmp_path, fault, PET_MAX_RESTARTS="0", COMPUTE_SECONDS="600") as nodes:
        nodes.start(0)
        nodes.start(1, PET_NPROC_PER_NODE="2")
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        output = nodes.output(0)
        assert f"hang: {cause}" in output
        assert "; started again\n" in output, "the first time is not charged"
        assert "[rank 0]: Current thread" in output
        recovery = nodes.report()["last_recovery"]
        cause, _, _lost = recovery.pop("cause").partition("; resumed at step ")  # if a report was behind
        assert cause in output
        assert list(recovery) == ["stop", "form", "start", "join", "restore", "first_step"]
        if fault == "skip":
            assert "which not all ranks have entered; ranks 0, 2 wait in all_reduce" in output
        if fault == "compute":
            assert "in compute, busy (it used " in output, "with a given timeout a busy rank is reported as such"
        assert_each_sample_counts_once(nodes.snapshots, tmp_path / "records", ORDER, epochs=2)


def test_a_repeated_hang_without_progress_is_fatal_on_all_nodes(tmp_path: Path) -> None:
    with hanging(tmp_path, "stop", PET_MAX_RESTARTS="1", HANG_AGAIN="1") as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [78, 78]
        ends = [nodes.end(0), nodes.end(1)]
    assert {end["rank"] for end in ends} == {1}
    assert all("hang: rank 1 (node 1, pod local-1)" in end["reason"] for end in ends)
    assert all(end["reason"].endswith("; no restart left of 1 at this step") for end in ends)


@pytest.mark.long  # tests/trainer/agent/processes/test_rank_watch.py has the rule
def test_a_long_step_of_a_busy_rank_is_no_hang(tmp_path: Path) -> None:
    env = {"KIT_POLICY_HANG_TIMEOUT": "auto", "COMPUTE_SECONDS": "40", "PET_MAX_RESTARTS": "0"}
    with hanging(tmp_path, "compute", **env) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        output = nodes.everything()
        assert "rank 1 has been in the forward pass of step 13 for 3" in output
        assert "but is busy: waiting for it" in output
        assert "hang:" not in output


@pytest.mark.wide
def test_slow_steps_and_long_evaluations_are_no_hang(tmp_path: Path) -> None:
    with hanging(tmp_path, "none", PET_MAX_RESTARTS="0", STEP_SECONDS="0.5", EVALUATION_SECONDS="6") as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        assert "hang:" not in nodes.everything()


@pytest.mark.wide
def test_a_slow_rank_is_named(tmp_path: Path) -> None:
    conf = "keep_alive_interval=1,keep_alive_max_attempt=1"  # one check per second
    with hanging(tmp_path, "none", PET_RDZV_CONF=conf, KIT_POLICY_HANG_TIMEOUT="off") as nodes:
        nodes.start(0)
        nodes.start(1, STEP_SECONDS="0.7")
        nodes.until(0, "rank 1 is slow: ")
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        report = nodes.report()
        assert report["busy"]["1"] > report["busy"]["0"]
        assert "1" in report["slow"]


def test_a_node_with_a_stopped_agent_is_lost_and_rejoins_when_it_continues(tmp_path: Path) -> None:
    steps = str(SCRIPTS / "steps.py")
    conf = "keep_alive_interval=1,keep_alive_max_attempt=1"
    with Nodes(tmp_path, steps, nodes="1:2", PET_MAX_RESTARTS="0", PET_RDZV_CONF=conf) as nodes:
        nodes.start(0, 1)
        nodes.until(0, "world of 2")
        frozen = [nodes.pid(1), *nodes.ranks(1)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        nodes.until(0, "node 1, pod local-1 is not responding")
        nodes.until(0, "world of 1")
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        nodes.until(0, "world of 2", times=2)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
