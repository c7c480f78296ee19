"""Which targets a fault may hit, and how the recovery is assessed."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest

from kitctl.api.drill import Drill, FaultSelector, Since, assess, assess_mirror
from kitctl.base.errors import UsageError
from kitctl.output.view.drill import table
from kitctl.state.facts import JobFacts
from kitctl.state.faults import FAULTS, FaultInjection, FaultResult
from kitjob import record
from kitjob.report import CopiesReport, MirrorReport, NodeAssignment, Progress, RecoveryTimings, Report
from tests.kitctl.state.test_phase import facts, node

INJECTED_AT = 100.0
SINCE = Since(INJECTED_AT, elapsed=9.0)
INJECTION = FaultInjection(fault="kill-rank", node=1, rank=2)
OLD = Report(
    round=1,
    formed=20.0,
    world_size=4,
    nodes={"0": NodeAssignment(ranks=(0, 1)), "1": NodeAssignment(ranks=(2, 3))},
    progress=Progress(step=57, resumed_from=0, resumed_at=21.0),
)
MIRRORED = record.replace(OLD, mirror=MirrorReport(url="s3://b/run", step=40, node=1))
FORMING = record.replace(OLD, forming=True)
FORMED = record.replace(OLD, round=2, formed=101.5)  # the progress is still that of the previous ranks
STEPPED = record.replace(FORMED, progress=Progress(step=51, resumed_from=50, resumed_at=102.25))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (FaultSelector(fault="kill-rank"), {(0, 0), (0, 1), (1, 2), (1, 3)}),
        (FaultSelector(fault="kill-rank", rank=2), {(1, 2)}),
        (FaultSelector(fault="freeze-rank", node=0), {(0, 0), (0, 1)}),
        (FaultSelector(fault="kill-node"), {(0, None), (1, None)}),
        (FaultSelector(fault="preempt", node=1), {(1, None)}),
    ],
)
def test_a_selector_matches_the_ranks_that_train(
    selector: FaultSelector, expected: set[tuple[int, int | None]]
) -> None:
    assert {(one.node, one.rank) for one in selector.candidates(OLD)} == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (FaultSelector(fault="kill-rank", rank=4), "no such node or rank is training"),
        (FaultSelector(fault="kill-rank", rank=0, node=1), "no such node or rank is training"),
        (FaultSelector(fault="preempt", node=2), "no such node or rank is training"),
        (FaultSelector(fault="kill-node", rank=0), "kill-node hits a node, not a rank"),
        (FaultSelector(fault="mirror-denied", rank=0), "mirror-denied hits a mirror, not a rank"),
        (FaultSelector(fault="mirror-denied"), "the job has no mirror"),
        (FaultSelector(fault="damage-part"), "the job's snapshots have no copies on other nodes"),
    ],
)
def test_a_selector_without_a_target_is_refused(selector: FaultSelector, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        selector.check(OLD)


def test_a_fault_of_the_mirror_is_one_of_the_node_that_uploads() -> None:
    selector = FaultSelector(fault="mirror-denied", lasting=2.5)
    selector.check(MIRRORED)
    (injection,) = set(selector.candidates(MIRRORED))
    assert (injection.target, injection.seconds) == ("the mirror of node 1", 2.5)
    assert injection.command() == ["kittrain.agent.fault_injection", "DENIED", "--seconds", "2.5"]
    FaultSelector(fault="damage-part").check(record.replace(OLD, copies=CopiesReport()))


@pytest.mark.parametrize(
    ("mirror", "step", "newest", "recovered"),
    [
        ({"step": 60}, 80, 60, True),
        ({"step": 80, "behind": 1}, 80, 60, True),  # where snapshots are frequent, one is always left
        ({"step": 60}, 80, None, False),  # the store is not back
        ({"step": 40, "behind": 1}, 80, 60, False),
        ({"step": 60, "warning": "does not answer"}, 80, 60, False),
        ({"step": 60}, OLD.progress.step, 60, False),  # it does not train on
    ],
)
def test_a_job_has_recovered_from_a_fault_of_its_mirror_once_that_has_all(
    mirror: dict[str, Any], step: int, newest: int | None, *, recovered: bool
) -> None:
    now = record.replace(
        MIRRORED,
        mirror=MirrorReport(url="s3://b/run", node=1, **mirror),
        progress=record.replace(MIRRORED.progress, step=step),
    )
    injection = FaultInjection(fault="mirror-denied", node=1, seconds=5.0)
    found = assess_mirror(injection, Since(INJECTED_AT, 9.0), job(MIRRORED), job(now), 1.5, newest)
    assert (found.recovered, found.told, found.steps_lost) == (recovered, 1.5, 0)
    assert not recovered or found.caught_up == 4.0


@pytest.mark.parametrize(
    ("report", "seen"),
    [
        (OLD, {}),
        (FORMING, {}),
        (FORMED, {"formed": 1.5}),
        (STEPPED, {"formed": 1.5, "first_step": 2.25, "steps_lost": 7, "recovered": True}),
        (record.replace(STEPPED, forming=True), {"formed": 1.5}),  # and lost again before the next poll
    ],
)
def test_a_job_has_recovered_with_the_first_step_of_its_next_group(report: Report, seen: dict[str, Any]) -> None:
    found = assess(INJECTION, SINCE, job(OLD), job(report), last_step=57)
    unseen: dict[str, Any] = {"formed": None, "first_step": None, "steps_lost": None, "recovered": False}
    assert {name: getattr(found, name) for name in unseen} == unseen | seen


@pytest.mark.parametrize("ahead", [-86400.0, -3.0, 8.0, 86400.0])
def test_a_clock_that_differs_from_the_nodes_gives_the_seconds_until_it_was_seen(ahead: float) -> None:
    found = assess(INJECTION, Since(INJECTED_AT + ahead, elapsed=9.0), job(OLD), job(STEPPED), last_step=57)
    assert found.formed is not None
    assert 0 <= found.formed <= 9
    assert found.first_step is not None
    assert 0 <= found.first_step <= 9
    assert found.recovered


def test_a_clock_that_is_set_back_makes_old_ranks_no_new_ones() -> None:
    """The new group has formed, by its clock, before the old ranks took their first step."""
    back = record.replace(FORMED, formed=1.5)
    found = assess(INJECTION, SINCE, job(OLD), job(back), last_step=57)
    assert (found.formed, found.recovered, found.steps_lost) == (9.0, False, None)


def test_a_job_that_reports_no_steps_has_recovered_with_its_next_group() -> None:
    old, new = (record.replace(report, progress=Progress()) for report in (OLD, FORMED))
    assert not assess(INJECTION, SINCE, job(old), job(old), last_step=0).recovered
    assert assess(INJECTION, SINCE, job(old), job(new), last_step=0).recovered


@pytest.mark.parametrize(("end", "recovered"), [("Succeeded", True), ("Failed", False), ("Cancelled", False)])
def test_a_job_that_ends_has_recovered_if_it_succeeds(end: str, *, recovered: bool) -> None:
    ended = msgspec.structs.replace(job(OLD), result=end)
    assert assess(INJECTION, SINCE, job(OLD), ended, last_step=57).recovered is recovered


def test_nodes_that_were_started_again_are_counted() -> None:
    again = facts(node(0), node(1, attempts=2), report=STEPPED)
    assert assess(INJECTION, SINCE, job(OLD), again, last_step=57).restarts == 1


def test_the_table() -> None:
    well = msgspec.structs.replace(
        assess(INJECTION, SINCE, job(OLD), job(STEPPED), last_step=57),
        timings=RecoveryTimings(stop=0.5, first_step=1.0),
    )
    ill = FaultResult(fault="preempt", target="node 0", time=INJECTED_AT, phase="Recovering", recovered=False)
    assert [re.split("   +", line) for line in table([well, ill])] == [
        ["FAULT", "TARGET", "NEW GROUP", "NEW STEP", "STEPS LOST", "RESTARTS", "RESULT", "TIMINGS"],
        ["kill-rank", "rank 2 (node 1)", "1.5 s", "2.2 s", "7", "0", "recovered", "stop 0.5, first step 1.0"],
        ["preempt", "node 0", "-", "-", "-", "0", "not recovered (recovering)", "-"],
    ]


def test_the_table_of_a_fault_of_the_mirror() -> None:
    injection = FaultInjection(fault="mirror-denied", node=1, seconds=5.0)
    now = record.replace(MIRRORED, progress=Progress(step=80))
    found = assess_mirror(injection, Since(INJECTED_AT, 9.0), job(MIRRORED), job(now), None, 40)
    seen = msgspec.structs.replace(found, told=1.5)
    target = "the mirror of node 1"
    assert [re.split("   +", line) for line in table([seen, found])] == [
        ["FAULT", "TARGET", "TOLD", "CAUGHT UP", "STEPS LOST", "RESTARTS", "RESULT"],
        ["mirror-denied", target, "1.5 s", "4.0 s", "0", "0", "caught up"],
        ["mirror-denied", target, "-", "4.0 s", "0", "0", "no snapshot was due"],
    ]


def test_the_command_within_a_node() -> None:
    assert INJECTION.command("--agent", "7") == [
        "kittrain.agent.fault_injection",
        "KILL",
        "--rank",
        "2",
        "--agent",
        "7",
    ]
    assert FaultInjection(fault="kill-agent", node=1).command() == [
        "kittrain.agent.fault_injection",
        "KILL",
    ]


def test_a_fault_of_a_rank_is_injected_inside_its_node() -> None:
    assert all(fault.inside for fault in FAULTS.values() if fault.scope == "rank")


def job(report: Report) -> JobFacts:
    return facts(node(0), node(1), report=report)


# -- several faults in sequence ---------------------------------------------------------------------------------------


class Clock:
    """A clock that advances only in sleep()."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeTarget:
    """A job that takes a step a second, forms a new group 2 s after a fault, and ends with the last fault."""

    def __init__(self, clock: Clock, *, ends_after: int = 99) -> None:
        self.clock = clock
        self.injected: list[float] = []
        self.ends_after = ends_after

    def inject_fault(self, _namespace: str, _name: str, _injection: FaultInjection) -> None:
        self.injected.append(self.clock.now)

    def job(self, _namespace: str, _name: str) -> JobFacts:
        faults, since = len(self.injected), self.clock.now - (self.injected[-1] if self.injected else 900.0)
        if faults >= self.ends_after:
            return msgspec.structs.replace(job(OLD), result="Succeeded")
        round_ = faults + (since >= 2)
        formed = self.clock.now - since + 2 if since >= 2 else self.clock.now
        progress = Progress(step=int(self.clock.now), resumed_from=1, resumed_at=formed + 0.5)
        report = record.replace(OLD, round=round_, formed=formed, forming=since < 2, progress=progress)
        return facts(node(0, started=1.0), node(1, started=1.0), report=report)


def drilled(monkeypatch: pytest.MonkeyPatch, *, count: int, every: float, **job_: Any) -> tuple[list[float], int]:
    """When faults were injected, and how many results there were."""
    clock = Clock()
    monkeypatch.setattr("kitctl.api.drill.time", clock)
    target: Any = FakeTarget(clock, **job_)
    drill = Drill(target=target, namespace="default", name="job", timeout=60.0)
    found = [*drill.run(FaultSelector(fault="kill-node", node=1), count=count, every=every, rng=Random(0))]
    return target.injected, len(found)


def test_faults_are_as_far_apart_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    for every in (60.0, 300.0):
        times, results = drilled(monkeypatch, count=3, every=every)
        assert results == 3
        assert all(every <= later - earlier < every + 30 for earlier, later in pairwise(times))


def test_no_fault_is_injected_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    times, results = drilled(monkeypatch, count=5, every=30.0, ends_after=2)
    assert (len(times), results) == (2, 2)
