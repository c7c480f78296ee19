"""A plain script that saves and exits with 0 on SIGTERM: its job continues until it has finished."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

PLAIN = """
import os, signal, sys, time
from pathlib import Path
folder = Path(os.environ["KIT_SNAPSHOT_DIR"])
saved = folder / os.environ["RANK"]
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
step = int(saved.read_text()) if saved.exists() else 0
print("resuming after step", step)
while not (folder / "enough").exists():
    time.sleep(0.02)
    step += 1
    if stopping:
        folder.mkdir(parents=True, exist_ok=True)
        saved.write_text(str(step))
        sys.exit(0)
print("finished after step", step)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_preempted_node_and_a_suspended_job_continue(kit: Kit) -> None:
    (kit.folder / "plain.py").write_text(PLAIN)
    kit.run("submit", "--name", "plain", "--nodes", "2", "plain.py")
    kit.until("plain", lambda job: job["phase"] == "Running" and count_in_logs(kit, "resuming") == 2)
    os.kill(kit.agent("plain", 1), signal.SIGTERM)
    kit.until("plain", lambda job: job["phase"] == "Running" and count_in_logs(kit, "resuming") == 4)
    assert kit.job("plain").node(1).attempts == 2
    assert kit.job("plain").node(0).attempts == 1

    kit.run("suspend", "plain")
    job = kit.status("plain")
    assert job["phase"] == "Suspended"
    assert [place["state"] for place in job["nodes"]] == ["Drained", "Drained"]
    kit.run("resume", "plain")
    kit.until("plain", lambda _: count_in_logs(kit, "resuming") == 6)
    (kit.snapshots("plain") / "enough").touch()
    kit.run("wait", "plain")
    assert count_in_logs(kit, "finished after step") == 2
    assert count_in_logs(kit, "resuming after step 0\n") == 2, "all others resumed from their step"


def count_in_logs(kit: Kit, text: str) -> int:
    """How often the ranks' logs contain ``text``."""
    return kit.read("logs", "plain", "--include", "step").count(text)


SLOW_STORE = """
import os, sys, time
from kittrain.workloads import toy
fsync = os.fsync
os.fsync = lambda file: (time.sleep(2), fsync(file))[1]
toy.main(sys.argv[1:])
"""


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_grace_period_that_is_too_short_for_the_store_is_told_with_what_is_lost(kit: Kit) -> None:
    (kit.folder / "slow.py").write_text(SLOW_STORE)
    (kit.folder / "job.yaml").write_text("policy: {gracePeriod: 3s}\n")
    toy = ["slow.py", "100", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]
    kit.run("submit", "-f", "job.yaml", "--name", "short", "--nodes", "2", "--snapshot-every", "10000", *toy)
    kit.until("short", lambda job: (job["progress"]["step"] or 0) > 20)
    kit.run("suspend", "short")
    nodes = kit.until("short", lambda job: all(node["reason"] for node in job["nodes"]))["nodes"]
    for node in nodes:  # the one with rank 0 or not: each of them may be all that a user sees
        assert "its ranks were killed before they had saved" in node["reason"]
        assert "at least steps 1 to" in node["reason"]
        assert "policy.gracePeriod" in node["reason"]
        assert node["reason"] in kit.run("logs", "short")
