"""Steps of a running rank are traced: of the library's loop, and of a script's own; the training goes on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

TOY = ["-m", "kittrain.workloads.toy", "500", "--samples", "512", "--batch_size", "16", "--step-time", "0.02"]
OWN_LOOP = """
import torch, time
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    time.sleep(0.01)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
IDLE = """
import torch, time
while True:
    time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("script", ["the library's", pytest.param("its own", marks=pytest.mark.wide)])
def test_steps_of_a_rank_are_traced_while_it_trains(kit: Kit, script: str) -> None:
    (kit.folder / "own.py").write_text(OWN_LOOP)
    kit.run("submit", "--name", "run", "--nodes", "2", "--", *(TOY if script == "the library's" else ["own.py"]))
    kit.until("run", lambda state: (state["progress"]["step"] or 0) > 3)
    output = kit.run("profile", "run", "--rank", "1", "--steps", "3", "-o", "trace.json")
    assert "wrote trace.json (" in output
    before = kit.status("run")
    trace = json.loads((kit.folder / "trace.json").read_text())
    assert_opens_in_perfetto(trace)
    named = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert len([name for name in named if name.startswith("ProfilerStep#")]) == 3
    assert any(name.startswith("Optimizer.step") for name in named)
    assert any("Backward" in name for name in named)
    assert "aten::addmm" in named or "aten::linear" in named
    assert [*kit.folder.glob(".*draft")] == []

    assert "wrote run-rank-0.json (" in kit.run("profile", "run", "--steps", "1"), "again, of another rank"
    state = kit.until("run", lambda state: state["progress"]["step"] > before["progress"]["step"] + 5)
    assert state["restarts"] == 0
    kit.run("cancel", "run")


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_rank_that_takes_no_steps_is_told(kit: Kit) -> None:
    (kit.folder / "idle.py").write_text(IDLE)
    kit.run("submit", "--name", "idle", "--", "idle.py")
    kit.until("idle", lambda state: state["phase"] == "Running" and state["worldSize"] == 1)
    kit.until("idle", lambda _: "idle.py" in kit.run("stacks", "idle"))
    output = kit.run("profile", "idle", "--timeout", "1s", exit_code=1)
    assert "no such number of calls of an optimizer within 1 s: kitctl stacks shows where it is" in output
    assert not (kit.folder / "idle-rank-0.json").exists()


def assert_opens_in_perfetto(trace: dict[str, Any]) -> None:
    """Chrome's trace format, by its specification: complete events have a name, a process, a thread and times."""
    assert trace["traceEvents"]
    for event in trace["traceEvents"]:
        assert isinstance(event["ph"], str)
        if event["ph"] == "X":
            assert isinstance(event["name"], str)
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert {"pid", "tid"} <= event.keys()
    assert_nests([event for event in trace["traceEvents"] if event["ph"] == "X"])


def assert_nests(events: Sequence[dict[str, Any]]) -> None:
    """Perfetto drops a range of a thread that begins in another one and ends after it."""
    open_ranges: dict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        outer = open_ranges[event["pid"], event["tid"]]
        while outer and outer[-1]["ts"] + outer[-1]["dur"] <= event["ts"]:
            outer.pop()
        if outer:
            assert event["ts"] + event["dur"] <= outer[-1]["ts"] + outer[-1]["dur"], (event, outer[-1])
        outer.append(event)
