"""Each node has a folder of its own: one is lost with everything in it, and the job goes on exactly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kitctl.targets.local import memory_folders
from kittrain.rank.world.order import Order
from tests.exact import assert_each_sample_counts_once, undisturbed
from tests.s3 import serving

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EPOCHS, SAMPLES, BATCH = 4, 512, 16
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
WORKLOAD = f"-m kittrain.workloads.toy {EPOCHS} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()
FAILED = 100
PLAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
"""
APART = ("--nodes", "3", "--snapshot-every", "10", "--set", "snapshots.storage=perNode")


def lose(kit: Kit, name: str, node: int) -> None:
    """All processes of a node die at once, and its folder is gone."""
    os.killpg(kit.agent(name, node), signal.SIGKILL)
    gone = kit.folder / f"gone-{time.monotonic()}"  # in one step: some of its processes end a moment later
    (kit.snapshots(name) / f"node-{node}").rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def copied(after: int, job: dict[str, Any]) -> bool:
    """Whether all nodes train, and a snapshot after that step is on two of them."""
    copies = job["copies"] or {}
    return bool(job["phase"] == "Running" and (copies.get("copied_step") or copies.get("copiedStep") or 0) > after)


def test_nodes_are_lost_with_their_folders_and_each_sample_counts_once(kit: Kit) -> None:
    records = kit.folder / "records"
    kit.run("submit", "--name", "apart", *APART, *WORKLOAD, "--step-time", "0.05", "--record", str(records))
    reached = 0
    for node in (0, 2):
        reached = kit.until("apart", partial(copied, reached + 20))["progress"]["step"]
        lose(kit, "apart", node)
    kit.run("wait", "apart")
    assert "Copies     2 of 2, step" in kit.run("status", "apart")

    ledger = assert_each_sample_counts_once(kit.snapshots("apart") / "node-1", records, ORDER, epochs=EPOCHS)
    assert len({entry.generation for entry in ledger}) > 2, "the losses left no trace in the history"
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", "apart")
    alone = undisturbed(WORKLOAD, kit.folder, ranks=3)
    model = next(kit.snapshots("apart").glob("node-*/model.pt"))
    ours, theirs = (torch.load(at, weights_only=True) for at in (model, alone / "model.pt"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.wide
def test_two_nodes_are_lost_at_once_and_the_job_ends_with_the_reason(kit: Kit) -> None:
    kit.run("submit", "--name", "both", *APART, "--set", "policy.maxRestarts=0", *WORKLOAD, "--step-time", "0.05")
    kit.until("both", partial(copied, 20))
    for node in (1, 2):
        lose(kit, "both", node)
    assert "no node that is left has some of its parts" in kit.run("wait", "both", exit_code=FAILED)
    why = kit.run("why", "both")
    assert "nodes were lost at once that had all copies of parts of the snapshots" in why
    assert "kitctl restart both starts it again" in why


@pytest.mark.wide
@pytest.mark.timeout(900)  # it may build the server
def test_all_nodes_are_lost_at_once_and_the_mirror_has_what_they_had(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = kit.folder / "records"
    with serving(tmp_path / "s3") as server:
        server.bucket("copies")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        mirror = ("--set", "snapshots.mirror=s3://copies/run")
        words = (*WORKLOAD, "--step-time", "0.05", "--record", str(records))
        kit.run("submit", "--name", "all", *APART, *mirror, *words)
        kit.until("all", lambda job: job["mirror"] and (job["mirror"]["step"] or 0) > 20)
        for node in (0, 1, 2):
            lose(kit, "all", node)
        kit.run("wait", "all")
        assert "comes from s3://copies/run" in kit.run("logs", "all")
        job = kit.status("all")
        assert job["mirror"]["step"] == EPOCHS * ORDER.steps_per_epoch
        assert f"proved: {EPOCHS} epochs" in kit.run("audit", "s3://copies/run")
    newest = max(kit.snapshots("all").glob("node-*"), key=lambda one: (one / "model.pt").exists())
    assert_each_sample_counts_once(newest, records, ORDER, epochs=EPOCHS)


@pytest.mark.timeout(900)  # it may build the server
def test_what_was_in_memory_is_in_the_mirror_when_all_nodes_end(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, epochs = "s3://copies/run", 2 * EPOCHS
    workload = [*WORKLOAD[:2], str(epochs), *WORKLOAD[3:]]
    with serving(tmp_path / "s3") as server:
        server.bucket("copies")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        words = (*workload, "--step-time", "0.05")
        memory = ("--set", "snapshots.storage=memory", "--set", f"snapshots.mirror={url}")
        kit.run("submit", "--name", "light", "--nodes", "3", "--snapshot-every", "10", *memory, *words)
        reached = 0
        for node in (0, 2):  # each with its memory
            reached = kit.until("light", partial(copied, reached + 20))["progress"]["step"]
            os.killpg(kit.agent("light", node), signal.SIGKILL)
        kit.until("light", partial(copied, reached + 20))
        assert "comes from" not in kit.run("logs", "light"), "the other nodes had it"
        parts = [link.resolve() for link in kit.snapshots("light").glob("node-*")]
        assert len(parts) == 3
        assert {part.parent for part in parts} == {memory_folders.ROOT}

        kit.run("suspend", "light")
        kit.until("light", lambda _: not any(part.exists() for part in parts))
        page = kit.run("status", "light")
        assert "was in the memory of each node, and is gone with it" in page
        assert f", which is in {url}; on another cluster: kitctl submit --continue {url} ..." in page
        stopped = kit.status("light")["progress"]["step"]
        (newest, *_) = json.loads(kit.run("snapshots", "list", url, "-o", "json"))["items"]
        assert newest["step"] == stopped, "the last step of a drained job was in memory only"
        assert f"ask for {url} instead of light" in kit.run("snapshots", "list", "light", exit_code=2)
        kit.run("resume", "light")
        kit.run("wait", "light")

        assert f"comes from {url}" in kit.run("logs", "light")
        assert f"proved: {epochs} epochs" in kit.run("audit", url)
        kit.run("snapshots", "export", url, "-o", str(kit.folder / "model.pt"))
    alone = undisturbed(workload, kit.folder, ranks=3)
    ours, theirs = (torch.load(at, weights_only=True) for at in (kit.folder / "model.pt", alone / "model.pt"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not [*kit.snapshots("light").glob("node-*")]


@pytest.mark.wide
def test_a_script_that_saves_by_itself_is_refused_with_the_fix(kit: Kit) -> None:
    (kit.folder / "plain.py").write_text(PLAIN)
    refused = kit.run("submit", "--name", "plain", *APART, "plain.py", exit_code=2)
    assert "and plain.py trains without kittrain" in refused
    assert "fix: snapshots.storage: claim" in refused
    output = kit.run("submit", "--name", "plain", *APART, "--no-checks", "--wait", "plain.py", exit_code=FAILED)
    assert "OwnFolderError: snapshots.storage: perNode keeps copies of the snapshots of kittrain.Training" in output
    assert "fix: snapshots.storage: claim, whose folder all nodes share" in output
