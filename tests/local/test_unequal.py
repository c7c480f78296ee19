"""Nodes with different numbers of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SCRIPT = """
import os
import torch, torch.distributed as dist
dist.init_process_group()
total = torch.ones(1)
dist.all_reduce(total)
local = f"{os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}"
print(f"rank {dist.get_rank()} is {local}, sum {total.item():.0f}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_world_is_the_sum(kit: Kit) -> None:
    (kit.folder / "train.py").write_text(SCRIPT)
    job = ("--name", "job", "--nodes", "2", "--procs-per-node", "1,2")
    kit.run("submit", *job, "--wait", "--", "train.py")
    logs = kit.run("logs", "job")
    for rank, local in enumerate(("0 of 1", "0 of 2", "1 of 2")):
        assert f"rank {rank} is {local}, sum 3" in logs
    assert "OMP_NUM_THREADS was read" not in logs, "ranks start warm"
