"""Whom a strike may hit, and what is made of what came after it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest

from kitctl.drill import Aim, Drill, judge
from kitctl.errors import UsageError
from kitctl.facts import JobFacts, Place, Progress, Report
from kitctl.facts import Recovery as Details
from kitctl.faults import FAULTS, Recovery, Strike
from kitctl.view.drills import recoveries
from tests.kitctl.test_state import facts, node

STRUCK = 100.0
STRIKE = Strike(fault="kill-rank", node=1, rank=2)
OLD = Report(
    round=1,
    formed=20.0,
    world_size=4,
    nodes={"0": Place(ranks=(0, 1)), "1": Place(ranks=(2, 3))},
    progress=Progress(step=57, resumed_from=0, resumed_at=21.0),
)
FORMING = msgspec.structs.replace(OLD, forming=True)
FORMED = msgspec.structs.replace(OLD, round=2, formed=101.5)  # still with the progress of the ranks before
STEPPED = msgspec.structs.replace(FORMED, progress=Progress(step=51, resumed_from=50, resumed_at=102.25))


@pytest.mark.parametrize(
    ("aim", "meant"),
    [
        (Aim(fault="kill-rank"), {(0, 0), (0, 1), (1, 2), (1, 3)}),
        (Aim(fault="kill-rank", rank=2), {(1, 2)}),
        (Aim(fault="freeze-rank", node=0), {(0, 0), (0, 1)}),
        (Aim(fault="kill-node"), {(0, None), (1, None)}),
        (Aim(fault="preempt", node=1), {(1, None)}),
    ],
)
def test_what_is_left_open_may_be_any_of_those_that_train(aim: Aim, meant: set[tuple[int, int | None]]) -> None:
    assert {(strike.node, strike.rank) for strike in aim.strikes(OLD)} == meant


@pytest.mark.parametrize(
    ("aim", "told"),
    [
        (Aim(fault="kill-rank", rank=4), "no such node or rank trains now"),
        (Aim(fault="kill-rank", rank=0, node=1), "no such node or rank trains now"),
        (Aim(fault="preempt", node=2), "no such node or rank trains now"),
        (Aim(fault="kill-node", rank=0), "kill-node strikes a node, not a rank"),
    ],
)
def test_whom_nobody_can_strike(aim: Aim, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        aim.check(OLD)


@pytest.mark.parametrize(
    ("report", "seen"),
    [
        (OLD, {}),
        (FORMING, {}),
        (FORMED, {"formed": 1.5}),
        (STEPPED, {"formed": 1.5, "first_step": 2.25, "steps_lost": 7, "recovered": True}),
        (msgspec.structs.replace(STEPPED, forming=True), {"formed": 1.5}),  # and lost again before anybody looked
    ],
)
def test_a_job_has_recovered_with_the_first_step_of_its_next_group(report: Report, seen: dict[str, Any]) -> None:
    found = judge(STRIKE, STRUCK, job(OLD), job(report), reached=57)
    unseen: dict[str, Any] = {"formed": None, "first_step": None, "steps_lost": None, "recovered": False}
    assert {name: getattr(found, name) for name in unseen} == unseen | seen


def test_a_job_that_tells_no_steps_has_recovered_with_its_next_group() -> None:
    old, new = (msgspec.structs.replace(report, progress=Progress()) for report in (OLD, FORMED))
    assert not judge(STRIKE, STRUCK, job(old), job(old), reached=0).recovered
    assert judge(STRIKE, STRUCK, job(old), job(new), reached=0).recovered


@pytest.mark.parametrize(("end", "recovered"), [("Succeeded", True), ("Failed", False), ("Cancelled", False)])
def test_a_job_that_ends_has_recovered_if_it_succeeds(end: str, *, recovered: bool) -> None:
    ended = msgspec.structs.replace(job(OLD), end=end)
    assert judge(STRIKE, STRUCK, job(OLD), ended, reached=57).recovered is recovered


def test_nodes_that_were_started_again_are_counted() -> None:
    again = facts(node(0), node(1, attempts=2), report=STEPPED)
    assert judge(STRIKE, STRUCK, job(OLD), again, reached=57).restarts == 1


def test_the_table() -> None:
    well = replace(judge(STRIKE, STRUCK, job(OLD), job(STEPPED), reached=57), details=Details(stop=0.5, first_step=1.0))
    ill = Recovery(fault="preempt", victim="node 0", time=STRUCK, phase="Recovering", recovered=False)
    assert [re.split("   +", line) for line in recoveries([well, ill])] == [
        ["FAULT", "STRUCK", "NEW GROUP", "NEW STEP", "STEPS LOST", "RESTARTS", "RESULT", "OF WHICH"],
        ["kill-rank", "rank 2 (node 1)", "1.5 s", "2.2 s", "7", "0", "recovered", "stop 0.5, first step 1.0"],
        ["preempt", "node 0", "-", "-", "-", "0", "not recovered (recovering)", "-"],
    ]


def test_what_strikes_within_a_node() -> None:
    assert STRIKE.command("--agent", "7") == [
        "-P",
        "-m",
        "kittrain.fault_injection",
        "KILL",
        "--rank",
        "2",
        "--agent",
        "7",
    ]
    assert Strike(fault="kill-agent", node=1).command() == ["-P", "-m", "kittrain.fault_injection", "KILL"]


def test_a_fault_of_a_rank_is_a_signal() -> None:
    assert all(fault.signal for fault in FAULTS.values() if fault.victim == "rank")


def job(report: Report) -> JobFacts:
    return facts(node(0), node(1), report=report)


# -- one strike after the other ---------------------------------------------------------------------------------------


class Clock:
    """A time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Stricken:
    """A job that takes a step a second, forms a new group 2 s after a strike, and ends with the last one of them."""

    def __init__(self, clock: Clock, *, ends_after: int = 99) -> None:
        self.clock = clock
        self.struck: list[float] = []
        self.ends_after = ends_after

    def strike(self, _namespace: str, _name: str, _strike: Strike) -> None:
        self.struck.append(self.clock.now)

    def job(self, _namespace: str, _name: str) -> JobFacts:
        strikes, since = len(self.struck), self.clock.now - (self.struck[-1] if self.struck else 900.0)
        if strikes >= self.ends_after:
            return msgspec.structs.replace(job(OLD), end="Succeeded")
        round_ = strikes + (since >= 2)
        formed = self.clock.now - since + 2 if since >= 2 else self.clock.now
        progress = Progress(step=int(self.clock.now), resumed_from=1, resumed_at=formed + 0.5)
        report = msgspec.structs.replace(OLD, round=round_, formed=formed, forming=since < 2, progress=progress)
        return facts(node(0, started=1.0), node(1, started=1.0), report=report)


def struck(monkeypatch: pytest.MonkeyPatch, *, count: int, every: float, **job_: Any) -> tuple[list[float], int]:
    """When a job was struck, and how many recoveries were told."""
    clock = Clock()
    monkeypatch.setattr("kitctl.drill.time", clock)
    target: Any = Stricken(clock, **job_)
    drill = Drill(target=target, namespace="default", name="job", timeout=60.0)
    found = [*drill.strikes(Aim(fault="kill-node", node=1), count=count, every=every, chance=Random(0))]
    return target.struck, len(found)


def test_strikes_are_as_far_apart_as_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for every in (60.0, 300.0):
        times, told = struck(monkeypatch, count=3, every=every)
        assert told == 3
        assert all(every <= later - earlier < every + 30 for earlier, later in pairwise(times))


def test_a_job_that_has_ended_is_struck_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    times, told = struck(monkeypatch, count=5, every=30.0, ends_after=2)
    assert (len(times), told) == (2, 2)
