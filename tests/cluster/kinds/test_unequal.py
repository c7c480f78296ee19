"""Nodes with different numbers of ranks form one world in pods, too, and do so again after a lost pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import job, kitctl, status, until_status
from tests.cluster.kubectl import kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

SCRIPT = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group()
total = torch.ones(1)
dist.all_reduce(total)
local = f"{os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}"
print(f"rank {dist.get_rank()} is {local}, sum {total.item():.0f}", flush=True)
time.sleep(20)
dist.destroy_process_group()
"""
RANKS = [[0, 1], [2, 3, 4, 5]]  # of each node


def ranks(state: dict[str, Any]) -> list[list[int]]:
    return [node["ranks"] for node in state["nodes"]]


def test_pods_with_two_and_four_ranks_form_one_world(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ("--nodes", "2", "--procs-per-node", "2,4", "--workdir", str(tmp_path))
    kitctl("submit", *job("run", namespace), *options, "--", "train.py")
    before = until_status("run", namespace, lambda state: ranks(state) == RANKS)
    lost = before["nodes"][1]["pod"]
    kubectl("delete", "pod", "-n", namespace, lost, "--wait=false", "--grace-period=0", "--force")
    until_status(*("run", namespace), lambda state: state["nodes"][1]["pod"] != lost and ranks(state) == RANKS)
    kitctl("wait", "run", "-n", namespace, "--timeout", "5m")
    assert status("run", namespace)["phase"] == "Succeeded"
    logs = kitctl("logs", "run", "-n", namespace)
    for rank, local in enumerate(("0 of 2", "1 of 2", "0 of 4", "1 of 4", "2 of 4", "3 of 4")):
        assert f"rank {rank} is {local}, sum 6" in logs
