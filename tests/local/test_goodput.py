"""Losses of known size, and a real kill: where the job's time went, beside what its ranks recorded themselves."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SCRIPT = Path(__file__).parent / "scripts" / "losses.py"
EVERY = 80  # steps between snapshots: rows end within a step, so that few repeated ones would be counted coarsely
WITHIN = partial(pytest.approx, rel=0.05)


class Loss(NamedTuple):
    what: str
    begin: float
    seconds: float


def recorded(folder: Path, rank: int) -> list[list[Loss]]:
    """What a rank has lost, by its starts."""
    return [
        [
            Loss(what, float(begin), float(seconds))
            for what, begin, seconds in map(str.split, path.read_text().splitlines())
        ]
        for path in sorted(folder.glob(f"rank-{rank}-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    ]


def total(starts: list[list[Loss]], what: str) -> float:
    return sum(one.seconds for start in starts for one in start if one.what == what)


def second_data(start: list[Loss]) -> float:
    """When a rank began to read its second batch."""
    step = next(index for index, one in enumerate(start) if one.what == "step")
    return next(one.begin for one in start[step:] if one.what == "data")


def account(kit: Kit, name: str) -> tuple[dict[str, Any], dict[str, float]]:
    found = json.loads(kit.read("goodput", name, "-o", "json"))
    seconds = {one["name"]: one["seconds"] for one in found["buckets"]}
    return found, seconds | {part["part"]: part["seconds"] for one in found["buckets"] for part in one["parts"]}


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_injected_losses_come_out_as_they_were(kit: Kit) -> None:
    records = kit.folder / "records"
    records.mkdir()
    kit.run("submit", "--name", "losses", "--nodes", "2", "--wait", "--", str(SCRIPT), str(records), "160", "40")
    ranks = [recorded(records, rank) for rank in range(2)]
    found, seconds = account(kit, "losses")
    assert seconds["data wait"] == WITHIN(sum(total(starts, "data") for starts in ranks))
    assert seconds["evaluation"] == WITHIN(sum(total(starts, "evaluation") for starts in ranks))
    data = [total(starts, "data") for starts in ranks]  # sleeps take longer than asked for, on one rank or the other
    assert seconds["in steps"] == WITHIN(total(ranks[1], "straggler") + data[1] - data[0])
    whole = sum(one["seconds"] for one in found["buckets"]) + found["unknownSeconds"]
    assert whole == pytest.approx(found["nodeSeconds"])
    job = kit.status("losses")
    assert found["nodeSeconds"] == pytest.approx(2 * (job["ended"] - job["created"]))
    assert found["unknownSeconds"] <= 0.005 * whole
    events = json.loads(kit.read("events", "losses", "-o", "json"))["items"]
    assert [one["what"] for one in events].count("snapshot") >= 3
    assert (events[0]["what"], events[-1]["what"], events[-1]["outcome"]) == ("submitted", "ended", "succeeded")


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.timeout(1200)
def test_a_killed_node_costs_what_the_ranks_saw(kit: Kit) -> None:
    records = kit.folder / "records"
    records.mkdir()
    kit.run("submit", "--name", "killed", "--nodes", "2", "--", str(SCRIPT), str(records), "160", str(EVERY))
    kit.until("killed", lambda job: (job["progress"]["step"] or 0) > 1.6 * EVERY)
    agent = kit.agent("killed", 1)
    killed = time.time()  # in a wait, which its rank records only when it has ended
    os.killpg(agent, signal.SIGKILL)
    kit.run("wait", "killed")
    first, second = recorded(records, 0)
    found, seconds = account(kit, "killed")

    _, restarted = recorded(records, 1)
    last = killed + first[-1].begin + first[-1].seconds  # when each rank last did something
    slow = next(one for one in restarted if one.what == "straggler")  # the first step ends after it
    ends = 2 * (slow.begin + slow.seconds), second_data(second) + second_data(restarted)
    assert 0.95 * (ends[0] - last) <= seconds["recovery"] <= 1.05 * (ends[1] - last)
    taken = sum(one.what == "step" for one in first) - 1  # the last one could not end
    lost = taken - EVERY
    assert found["repeatedSteps"] in {lost - 1, lost, lost + 1}
    begun = [index for index, one in enumerate(second) if one.what == "step"]
    of_new = second[begun[found["repeatedSteps"] - 1] + 1].begin  # its data
    assert seconds["repeated steps"] == WITHIN(2 * (of_new - second_data(second)))
    whole = sum(one["seconds"] for one in found["buckets"]) + found["unknownSeconds"]
    assert whole == pytest.approx(found["nodeSeconds"])
    assert max(found["unknownSeconds"], found["overlapSeconds"]) <= 0.005 * whole  # a machine's clock is corrected
    assert found["faults"] == 1
    told = [one["what"] for one in json.loads(kit.read("events", "killed", "-o", "json"))["items"]]
    assert {"fault", "recovered"} <= {*told}
