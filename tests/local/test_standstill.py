"""A job that does not end shows where its ranks are, and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SCRIPT = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["RANK"] == "1":
    while not os.path.exists("go"):
        time.sleep(0.1)
dist.barrier()
"""


def test_a_rank_that_others_wait_for_is_shown_in_a_plain_script_and_nothing_is_ended(kit: Kit) -> None:
    (kit.folder / "train.py").write_text(SCRIPT)
    kit.run("submit", "--name", "still", "--nodes", "2", "train.py")
    waiting = kit.start("wait", "still")
    what = "rank 1 sleeps in `time.sleep(0.1)` at train.py:7, rank 0 waits in barrier at train.py:8"
    state = kit.until("still", lambda job: job["standstill"] and job["standstill"]["what"] == what)
    assert (state["phase"], state["reason"], state["failure"]) == ("Running", "", None)
    assert what in kit.run("status", "still")
    assert "no step for" in kit.run("doctor", "still")
    (kit.folder / "go").touch()
    output, errors = waiting.communicate(timeout=600)
    assert waiting.returncode == 0, output + errors
    assert f": {what}" in errors
    assert "Thread" not in kit.run("logs", "still")  # nothing is printed to the log
    assert kit.status("still")["standstill"] is None
