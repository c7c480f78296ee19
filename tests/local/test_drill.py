"""Drills: each fault is real, and the recovery is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.s3 import serving

if TYPE_CHECKING:
    from tests.local.conftest import Kit

TOY = ["-m", "kittrain.workloads.toy", "200", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_fault_is_injected_and_its_recovery_measured(kit: Kit) -> None:
    kit.run("submit", "--name", "drilled", "--nodes", "2:3", "--snapshot-every", "20", *TOY)
    kit.until("drilled", trains)
    refused = kit.run("drill", "drilled", "--fault", "kill-rank", "--rank", "3", exit_code=2)
    assert "choose among ranks 0 to 2 on nodes 0, 1, 2" in refused
    assert "confirmation needed" in kit.run("drill", "drilled", "--fault", "kill-rank", exit_code=2)

    output = kit.run("drill", "drilled", "--fault", "kill-rank", "--rank", "1", "--count", "2", "--every", "1s", "-y")
    assert "SIGKILL to one rank" in output
    assert output.count("kill-rank   rank 1 (node 1)") == 2
    assert "rank 1 failed (killed by SIGKILL)" in kit.run("logs", "drilled", "--node", "1")
    for fault in ("kill-agent", "kill-node", "preempt"):
        kit.until("drilled", trains)
        recovery = drill(kit, "drilled", "--fault", fault, "--node", "0")
        assert recovery["recovered"]
        assert recovery["target"] == "node 0"
        assert recovery["firstStep"] >= recovery["formed"] > 0
        assert recovery["stepsLost"] <= (0 if fault == "preempt" else 100)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_that_does_not_recover_is_exit_code_1(kit: Kit) -> None:
    kit.run("submit", "--name", "ends", "--nodes", "2", "--max-restarts", "0", "--snapshot-every", "9999", *TOY)
    kit.until("ends", lambda job: job["phase"] == "Running" and job["progress"]["step"])
    output = kit.run("drill", "ends", "--fault", "kill-rank", "--timeout", "2m", "-y", exit_code=1)
    assert "not recovered (failed)" in output
    output = kit.run("drill", "ends", "--fault", "kill-rank", "-y", exit_code=2)
    assert "job 'ends' is not running (failed)" in output


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1800)  # it may build the server
def test_what_is_stored_is_drilled_too(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror's store fails in each way, and training goes on; a damaged part is read from its copy."""
    url, words = "s3://bucket/run", [*TOY[:2], "1000", *TOY[3:]]  # until it is cancelled
    stored = ("--set", "snapshots.storage=perNode", "--set", f"snapshots.mirror={url}")
    with serving(tmp_path / "s3") as server:
        server.bucket("bucket")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        kit.run("submit", "--name", "stored", "--nodes", "2", "--snapshot-every", "60", *stored, *words)
        kit.until("stored", lambda job: job["mirror"] and (job["mirror"]["step"] or 0) >= 20)
        for fault in ("mirror-denied", "mirror-unavailable", "mirror-cut-off"):
            lasting = "1m" if fault == "mirror-cut-off" else "20s"
            drilling = kit.start("drill", "stored", "--fault", fault, "--lasting", lasting, "-y", "-o", "json")
            told = kit.until("stored", lambda job: job["mirror"]["warning"])
            print(fault, told["mirror"])
            assert kit.read("why", "stored").startswith("snapshots are not mirrored now: ")
            output, errors = drilling.communicate(timeout=600)
            assert drilling.returncode == 0, errors
            (result,) = json.loads(output)["faults"]
            assert result["told"] > 0
            assert result["caughtUp"] > 0
            assert (result["stepsLost"], result["restarts"]) == (0, 0)
        assert drill(kit, "stored", "--fault", "damage-part", "--node", "1")["target"] == "rank 1 (node 1)"
        assert "another node's copy is used" in kit.run("logs", "stored")
        kit.run("cancel", "stored")
        assert {one["condition"] for one in items(kit, "list", url)} == {"whole"}
        assert {one["condition"] for one in items(kit, "verify", url)} == {"verified"}


def items(kit: Kit, verb: str, url: str) -> list[dict[str, Any]]:
    """The snapshots of a mirror."""
    found: list[dict[str, Any]] = json.loads(kit.run("snapshots", verb, url, "-o", "json"))["items"]
    return found


OWN_LOOP = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
file, begin = sys.argv[1], 0
if file != "none" and os.path.exists(file):
    begin = torch.load(file)["step"]
for step in range(begin, 4000):
    time.sleep(0.02)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if file != "none" and dist.get_rank() == 0 and step + 1 == 20:
        torch.save({"step": step + 1}, file + ".new")
        os.replace(file + ".new", file)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.wide
@pytest.mark.parametrize("file", ["none", "ck.pt"])
def test_steps_that_a_script_with_its_own_loop_takes_again_are_told(kit: Kit, file: str) -> None:
    (kit.folder / "own.py").write_text(OWN_LOOP)
    kit.run("submit", "--name", "own", "--nodes", "3", "--", "own.py", file)
    kit.until("own", lambda job: trains(job) and job["progress"]["step"] > 40)
    for fault, count in (("kill-rank", 1), ("kill-node", 2)):
        result = drill(kit, "own", "--fault", fault)
        state = kit.until("own", lambda job: job["progress"]["resumedFrom"] is not None)
        assert state["restarts"] == count, "of ranks and of nodes alike"
        if file == "none":
            assert state["progress"]["resumedFrom"] == 0
            assert result["stepsLost"] > 0
            assert "resumed at step 0: " in state["reason"]
            unseen = "was not seen to save a checkpoint" if fault == "kill-rank" else "has loaded nothing that it saved"
            assert f"the script {unseen}" in state["reason"], "of a node that is gone nobody knows"
        else:
            assert state["progress"]["resumedFrom"] == 20
            assert state["reason"] == ""
        kit.until("own", lambda job: trains(job) and job["progress"]["step"] > 40)
    pattern = f"resumed at step {0 if file == 'none' else 20}: "
    assert kit.run("logs", "own").count(pattern) == 2
    kit.run("cancel", "own")


def trains(job: dict[str, Any]) -> bool:
    """Whether all three ranks train."""
    return job["phase"] == "Running" and job["worldSize"] == 3 and bool(job["progress"]["step"])


def drill(kit: Kit, *words: str) -> dict[str, Any]:
    """The result of one fault."""
    process = kit.start("drill", *words, "-y", "-o", "json")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    (recovery,) = json.loads(output)["faults"]
    print(recovery)
    found: dict[str, Any] = recovery
    return found
