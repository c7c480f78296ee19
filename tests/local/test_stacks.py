"""The stacks of a job's ranks, while one of them holds up the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

HANGS = """
import os, time
import torch
import torch.distributed as dist

def rest():
    open("rests", "w").close()
    time.sleep(600)

dist.init_process_group("gloo")
if dist.get_rank() == 3:
    rest()
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_rank_that_holds_up_the_others_is_shown(kit: Kit) -> None:
    (kit.folder / "hangs.py").write_text(HANGS)
    kit.run("submit", "--name", "hangs", "--nodes", "2", "--procs-per-node", "2", "--", "hangs.py")
    kit.until("hangs", lambda _: waits(ranks(kit)))
    found = ranks(kit)
    assert found[3]["line"] == "hangs.py:8 in rest"
    assert [found[rank]["line"] for rank in range(3)] == ["hangs.py:13 in <module>"] * 3

    text = kit.run("stacks", "hangs")
    assert text.startswith("rank 3 (node 1, process ")
    assert "\n  rest  " in text
    assert "\nranks 0-2 (nodes 0-1), " in text
    only = json.loads(kit.run("stacks", "hangs", "--rank", "3", "-o", "json"))
    assert [one["rank"] for node in only["nodes"] for one in node["ranks"]] == [3]
    assert "choose among ranks 0 to 3" in kit.run("stacks", "hangs", "--rank", "4", exit_code=102)
    assert kit.status("hangs")["restarts"] == 0, "they were only looked at"
    kit.run("cancel", "hangs")
    assert "no node of job 'hangs' runs (cancelled)" in kit.run("stacks", "hangs", exit_code=2)


def ranks(kit: Kit) -> dict[int, dict[str, Any]]:
    """What each rank of the job answers."""
    process = kit.start("stacks", "hangs", "-o", "json")
    output, _ = process.communicate(timeout=60)
    nodes = json.loads(output)["nodes"] if process.returncode == 0 else []
    return {one["rank"]: one for node in nodes for one in node["ranks"]}


def waits(found: dict[int, dict[str, Any]]) -> bool:
    """Whether rank 3 rests, and the others wait for it."""
    others = [found.get(rank, {}).get("wait", "") == "all_reduce" for rank in range(3)]
    return all(others) and "rest" in found.get(3, {}).get("line", "")
