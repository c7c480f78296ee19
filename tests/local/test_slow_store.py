"""A store that takes long is seen while it does, and loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SLOW = """
import os, time
from pathlib import Path
fsync = os.fsync
def slow_fsync(descriptor):
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    while "/snapshots/default/" in name and "step-" in name and Path(__file__).with_name("slow").exists():
        time.sleep(0.05)
    return fsync(descriptor)
os.fsync = slow_fsync
"""
TOY = ["-m", "kittrain.workloads.toy", "40", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]


@pytest.mark.wide
def test_a_slow_store_is_shown_while_training_continues_and_the_snapshot_is_there_after_it(kit: Kit) -> None:
    (kit.folder / "sitecustomize.py").write_text(SLOW)
    (kit.folder / "slow").touch()
    words = ["--nodes", "2", "--snapshot-every", "10", "--env", f"PYTHONPATH={kit.folder}"]
    kit.run("submit", "--name", "slow", *words, *TOY)
    state = kit.until("slow", lambda job: job["progress"]["writingStep"] == 10 and job["progress"]["step"] > 30)
    assert state["progress"]["snapshotStep"] == 0
    kit.until("slow", lambda _: "Snapshot   none yet, writing step 10 for " in kit.read("status", "slow"))
    (kit.folder / "slow").unlink()
    state = kit.until("slow", lambda job: job["progress"]["snapshotStep"])
    assert state["progress"]["snapshotTime"] > state["created"]
    kit.until("slow", lambda _: " ago), in " in kit.read("status", "slow"))
    kit.run("delete", "slow", "-y")
