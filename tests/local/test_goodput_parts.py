"""The buckets outside of training, and those of a script's own loop, with losses of known size: beside what the ranks
recorded, and the supervisor.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.local.test_goodput import WITHIN, account, recorded, total

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT = str(SCRIPTS / "outside_steps.py")
LAST = 0.3  # seconds that a process of a busy machine takes to end, and more where it is very busy


def started(kit: Kit, name: str, node: int, attempt: int) -> float:
    found = kit.job(name).node(node).started(attempt)
    assert found
    return found.time


def exited(kit: Kit, name: str, node: int, attempt: int) -> float:
    found = kit.job(name).node(node).exited(attempt)
    assert found
    return found.time


def assert_adds_up(found: dict[str, Any]) -> None:
    assert found["unknownSeconds"] <= 0.005 * found["nodeSeconds"]
    assert found["overlapSeconds"] <= 0.005 * found["nodeSeconds"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_what_is_lost_before_steps_in_snapshots_while_suspended_and_at_the_end(kit: Kit) -> None:
    records = kit.folder / "records"
    records.mkdir()
    kit.run("submit", "--name", "outside", "--nodes", "2", "--", SCRIPT, str(records), "160", "40")
    kit.until("outside", lambda job: (job["progress"]["step"] or 0) > 60)
    kit.run("suspend", "outside")
    time.sleep(16.0)
    kit.run("resume", "outside")
    kit.run("wait", "outside")
    ranks = [recorded(records, rank) for rank in range(2)]
    found, seconds = account(kit, "outside")
    assert_adds_up(found)

    job = kit.status("outside")
    placed = sum(started(kit, "outside", node, 1) - job["created"] for node in range(2))
    assert seconds["placement"] == WITHIN(placed, abs=0.1)
    stopped = sum(started(kit, "outside", node, 2) - exited(kit, "outside", node, 1) for node in range(2))
    assert seconds["drained"] == pytest.approx(stopped, rel=0.05, abs=2 * LAST)
    assert seconds["snapshot stall"] == WITHIN(sum(total(starts, "save") for starts in ranks), abs=LAST)
    assert seconds["restore"] == WITHIN(sum(total(starts, "restore") for starts in ranks), abs=LAST)
    left = sum(job["ended"] - starts[-1][-1].begin for starts in ranks)  # from the end of its training on
    assert seconds["ended"] + seconds["at the end"] == WITHIN(left, abs=LAST)
    assert seconds["at the end"] == WITHIN(total(ranks[1], "tail"), abs=4 * LAST)
    firsts = [  # of each start of each node: until its first step began, without what is counted elsewhere
        next(one.begin for one in start if one.what == "step")
        - started(kit, "outside", rank, attempt)
        - sum(one.seconds for one in start if one.what == "restore")
        for rank, starts in enumerate(ranks)
        for attempt, start in enumerate(starts, start=1)
    ]
    joined = seconds.get("to form a group", 0.0) + seconds.get("code", 0.0)
    assert seconds["start and join"] == WITHIN(sum(firsts) - joined, abs=4 * LAST)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_hang_is_idle_from_each_rank_s_last_movement_until_it_was_recognized(kit: Kit) -> None:
    records = kit.folder / "records"
    records.mkdir()
    words = ("--nodes", "2", "--hang-timeout", "12s", "--", SCRIPT, str(records), "80", "80", "30")
    kit.run("submit", "--name", "hangs", *words)
    kit.run("wait", "hangs")
    found, seconds = account(kit, "hangs")
    assert_adds_up(found)
    last = [recorded(records, rank)[0][-1].begin for rank in range(2)]
    events = json.loads(kit.read("events", "hangs", "-o", "json"))["items"]
    (fault,) = [one for one in events if one["what"] == "fault"]
    assert fault["outcome"] == "hang"
    assert seconds["idle after a hang"] == WITHIN(sum(fault["time"] - one for one in last), abs=2 * LAST)
    assert seconds["repeated steps"] > 0 < seconds["recovery"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_in_a_script_s_own_loop_a_rank_waits_for_a_slow_one_and_for_one_that_evaluates(kit: Kit) -> None:
    records = kit.folder / "records"
    records.mkdir()
    script = str(SCRIPTS / "own_loop.py")
    kit.run("submit", "--name", "own", "--nodes", "2", "--wait", "--", script, str(records), "150")
    found, seconds = account(kit, "own")
    assert_adds_up(found)
    fast, slow = (total(recorded(records, rank), "forward") for rank in range(2))
    evaluation = total(recorded(records, 0), "evaluation")
    assert seconds["evaluation"] == WITHIN(evaluation)
    assert seconds["in steps"] == WITHIN(slow - fast + evaluation, abs=1.5)  # rows end within steps
    events = json.loads(kit.read("events", "own", "-o", "json"))["items"]
    assert sum(one["seconds"] for one in events if one["what"] == "evaluated") == WITHIN(evaluation)
    assert seconds["training"] == WITHIN(2 * slow - (slow - fast), rel=0.1)
