"""A job from submit to delete, with every command in between."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from kittrain.outcome.marker import finished

if TYPE_CHECKING:
    from tests.local.conftest import Kit

TOY = ["-m", "kittrain.workloads.toy", "100", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]


def trains(kit: Kit, name: str, *, ranks: int, after: int | None = None) -> None:
    """Wait until a group of this size has taken steps, beyond those of earlier groups."""
    formed = kit.until(name, lambda job: job["phase"] == "Running" and job["worldSize"] == ranks)
    reached = max(after or 0, formed["progress"]["step"] or 0)
    kit.until(name, lambda job: (job["progress"]["step"] or 0) > reached)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_elastic_job_through_every_command(kit: Kit) -> None:
    kit.run("submit", "--name", "life", "--nodes", "1:2", "--snapshot-every", "20", *TOY)
    job = kit.until("life", lambda job: job["phase"] == "Running" and job["progress"]["step"])
    assert job["worldSize"] == 2
    assert sorted(node["ranks"] for node in job["nodes"]) == [[0], [1]]
    assert "life" in kit.run("list")
    assert "training with 2 ranks" in kit.run("logs", "life", "--rank", "0")
    assert "[rank 0]" not in kit.run("logs", "life", "--rank", "1")

    kit.run("suspend", "life")
    job = kit.status("life")
    assert job["phase"] == "Suspended"
    assert [place["state"] for place in job["nodes"]] == ["Drained", "Drained"]
    kept = job["progress"]["snapshotStep"]
    assert kept == job["progress"]["step"], "a suspended job has lost nothing"

    kit.run("resume", "life")
    trains(kit, "life", ranks=2, after=kept)
    kit.run("scale", "life", "--nodes", "1")
    trains(kit, "life", ranks=1)
    kit.run("scale", "life", "--nodes", "2")
    trains(kit, "life", ranks=2)
    assert "1 to 2 nodes" in kit.run("scale", "life", "--nodes", "3", exit_code=2)

    kit.run("cancel", "life")
    assert kit.status("life")["phase"] == "Cancelled"
    kit.run("wait", "life", exit_code=103)
    kit.run("restart", "life")
    trains(kit, "life", ranks=2)
    logs = kit.run("logs", "life", "--include", "resuming after step")
    assert len(logs.splitlines()) >= 4, "after resume, two scales, and restart; once more for a late node"
    kit.run("delete", "life")
    kit.run("status", "life", exit_code=102)
    assert list(kit.snapshots("life").glob("step-*")), "snapshots outlive the job"


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_resume_continues_an_earlier_job_of_the_name(kit: Kit) -> None:
    words = ["-m", "kittrain.workloads.toy", "--samples", "64", "--batch_size", "16"]
    kit.run("submit", "--name", "again", "--wait", *words, "2")
    run = kit.job("again").job.run
    assert finished(kit.snapshots("again"), run)
    kit.run("delete", "again")
    kit.run("submit", "--name", "again", "--resume", "--wait", *words, "4")
    assert "resuming after step 8, in epoch 3" in kit.run("logs", "again")
    kit.run("delete", "again")
    kit.run("submit", "--name", "again", "--wait", *words, "2")
    assert "resuming" not in kit.run("logs", "again"), "without --resume a job starts from scratch"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_failed_job_reports_the_first_failing_ranks_traceback(kit: Kit) -> None:
    words = ["-m", "kittrain.workloads.toy", "1", "--fail-at", "2", "--fail-rank", "1"]
    output = kit.run(
        "submit", "--name", "fails", "--nodes", "2", "--max-restarts", "1", "--wait", *words, exit_code=100
    )
    assert "failed: rank 1: ValueError: failing at step 2" in output
    job = kit.status("fails")
    assert job["phase"] == "Failed"
    assert job["failure"]["rank"] == 1
    assert "in observe" in job["failure"]["traceback"]
    assert "ValueError: failing at step 2" in kit.run("status", "fails")
    kit.run("status", "fails", "--exit-code", exit_code=100)
    assert "restart 1 of 1" in kit.run("logs", "fails")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ctrl_c_while_following_leaves_the_job_running_and_shows_how_to_follow_again(kit: Kit) -> None:
    follower = kit.start("submit", "--name", "lives", "--follow", *TOY)
    assert follower.stdout is not None
    assert follower.stderr is not None
    while "training with" not in follower.stdout.readline():
        pass
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=60)
    assert follower.returncode == 130
    assert "left 'lives' running" in errors
    assert "kitctl logs -f lives" in errors
    step = kit.until("lives", lambda job: job["progress"]["step"])["progress"]["step"]
    kit.until("lives", lambda job: job["progress"]["step"] > step)
    before = time.monotonic()
    kit.run("wait", "lives", "--timeout", "1s", exit_code=124)
    assert time.monotonic() - before < 60


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_concurrent_jobs_do_not_disturb_each_other(kit: Kit) -> None:
    words = ["-m", "kittrain.workloads.toy", "2", "--samples", "128", "--batch_size", "16", "--step-time", "0.1"]
    for name in ("left", "right"):
        kit.run("submit", "--name", name, "--nodes", "2", *words)
    for name in ("left", "right"):
        kit.run("wait", name)
    jobs = json.loads(kit.run("list", "-o", "json"))["items"]
    assert [(job["phase"], job["restarts"], job["progress"]["step"]) for job in jobs] == [("Succeeded", 0, 16)] * 2
