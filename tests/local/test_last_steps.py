"""What a local job says of its steps and snapshots, whatever happens to its nodes at once or at the end."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from kittrain.agent.rounds.elastic import FINISHED_EXIT_TIMEOUT

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
TOY = ["-m", "kittrain.workloads.toy", "100", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]
PLAIN = """
import os, time
from pathlib import Path
print("ready", flush=True)
while not Path("enough").exists():
    time.sleep(0.02)
"""
LATE = """
import sys, time
from pathlib import Path
from kittrain.workloads import toy
toy.main(sys.argv[1:])
print("trained", flush=True)
while not Path(sys.argv[0]).with_name("enough").exists():
    time.sleep(0.02)
"""


@pytest.mark.wide
def test_a_plain_script_without_steps_is_not_said_to_lack_a_snapshot(kit: Kit) -> None:
    (kit.folder / "plain.py").write_text(PLAIN)
    kit.run("submit", "--name", "plain", "--nodes", "1", "plain.py")
    kit.until("plain", lambda job: job["phase"] == "Running" and "ready" in kit.read("logs", "plain"))
    assert "Snapshot" not in kit.read("status", "plain")
    kit.run("delete", "plain", "-y")


@pytest.mark.wide
def test_steps_that_are_lost_with_all_agents_at_once_are_told(kit: Kit) -> None:
    kit.run("submit", "--name", "gone", "--nodes", "2", "--snapshot-every", "1000", *TOY)
    kit.until("gone", lambda job: (job["progress"]["step"] or 0) > 60)
    kit.kill("gone", 0, 1)
    state = kit.until("gone", lambda job: "steps lost" in job["reason"])
    assert "resumed at step 0: at least" in state["reason"]
    assert "resumed at step 0: at least" in kit.run("logs", "gone")
    kit.run("delete", "gone", "-y")


QUICK = """
import os, torch
from pathlib import Path
from torch.utils.data import DataLoader, TensorDataset
from kittrain import Run, join

with join(seed=0) as world:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(TensorDataset(torch.ones(80, 2)), batch_size=4)
    with Run(world, model=model, optimizer=optimizer) as run:
        for epoch in run.epochs(1):
            for (x,) in run.batches(loader):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                run.step(loss, samples=len(x))
                if run.steps_done == 10 and not Path("died").exists():
                    Path("died").touch()
                    os._exit(3)
"""


def test_steps_that_were_taken_faster_than_they_are_reported_are_lost_by_their_number(kit: Kit) -> None:
    (kit.folder / "quick.py").write_text(QUICK)
    kit.run("submit", "--name", "quick", "--nodes", "1", "--wait", "quick.py")
    assert "; resumed at step 0: 10 steps lost" in kit.read("status", "quick")
    kit.run("delete", "quick", "-y")


@pytest.mark.wide
def test_a_job_killed_after_its_last_step_shows_its_progress_and_snapshot(kit: Kit) -> None:
    short = ["-m", "kittrain.workloads.toy", "2", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]
    (kit.folder / "late.py").write_text(LATE)
    kit.run("submit", "--name", "late", "--nodes", "2", "late.py", *short[2:])
    kit.until("late", lambda _: kit.read("logs", "late").count("trained") == 2)
    kit.until("late", lambda job: job["progress"]["snapshotStep"] == 64)  # reports are up to a second old
    kit.kill("late", 0, 1)
    kit.run("wait", "late")
    state = kit.status("late")
    assert state["progress"]["step"] == state["progress"]["snapshotStep"] == 64
    (listed,) = json.loads(kit.read("list", "-o", "json"))["items"]
    assert listed["restarts"] == state["restarts"] > 0
    page = kit.read("status", "late")
    assert "step 64/64" in page
    assert "Snapshot   step 64" in page
    kit.run("delete", "late", "-y")


def test_a_node_lost_after_the_training_does_not_keep_the_others_waiting(kit: Kit) -> None:
    short = ["2", "--samples", "512", "--batch_size", "16"]
    (kit.folder / "late.py").write_text(LATE)
    kit.run("submit", "--name", "after", "--nodes", "2", "late.py", *short)
    kit.until("after", lambda _: kit.read("logs", "after").count("trained") == 2)
    kit.kill("after", 1)
    kit.run("wait", "after", "--timeout", "3m")
    reasons = [node["reason"] for node in kit.status("after")["nodes"]]
    assert any("what the script did after its training was cut short" in reason for reason in reasons), reasons
    kit.run("delete", "after", "-y")


OWN_WORK = """
import os, sys, time
from pathlib import Path
from kittrain.workloads import toy
who = sys.argv.pop()
toy.main(sys.argv[1:])
print("trained", flush=True)
while os.environ["RANK"] == who and not Path(sys.argv[0]).with_name("enough").exists():
    time.sleep(0.02)
print("all done", flush=True)
"""


@pytest.mark.parametrize("who", ["0", pytest.param("1", marks=pytest.mark.wide)])
def test_what_one_rank_does_after_the_training_is_waited_for(kit: Kit, who: str) -> None:
    """Also by the node of the others' hub, and for longer than a node waits that others can do without."""
    (kit.folder / "own.py").write_text(OWN_WORK)
    kit.run("submit", "--name", "own", "--nodes", "2", "own.py", "2", "--samples", "512", "--batch_size", "16", who)
    kit.until("own", lambda _: kit.read("logs", "own").count("trained") == 2)
    kit.until("own", lambda _: kit.read("logs", "own").count("all done") == 1)
    time.sleep(FINISHED_EXIT_TIMEOUT + 2)
    (kit.folder / "enough").touch()
    kit.run("wait", "own")
    assert kit.read("logs", "own").count("all done") == 2
    assert [node["reason"] for node in kit.status("own")["nodes"]] == ["all ranks succeeded"] * 2
    kit.run("delete", "own", "-y")


KILLS = """
import json, os, signal, sys
from pathlib import Path
from kittrain.workloads import toy
job = Path(sys.argv.pop())
toy.main(sys.argv[1:])
own = os.environ["RANK"] == "0" and not Path(sys.argv[0]).with_name("killed").exists()
if own:
    Path(sys.argv[0]).with_name("killed").touch()
    for started in sorted(job.glob("nodes/*/1.start.json"), reverse=True):
        os.killpg(json.loads(started.read_text())["pid"], signal.SIGKILL)
"""


def test_the_last_step_is_shown_if_all_agents_are_killed_before_they_report_it(kit: Kit) -> None:
    short = ["2", "--samples", "512", "--batch_size", "16", "--step-time", "0.01"]
    (kit.folder / "kills.py").write_text(KILLS)
    kit.run("submit", "--name", "kills", "--nodes", "2", "kills.py", *short, str(kit.job("kills").path))
    kit.run("wait", "kills")
    assert (kit.folder / "killed").exists()
    state = kit.status("kills")
    assert (state["phase"], state["progress"]["step"], state["progress"]["snapshotStep"]) == ("Succeeded", 64, 64)
    assert "step 64/64" in kit.read("status", "kills")
    kit.run("delete", "kills", "-y")
