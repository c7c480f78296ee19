"""What is drawn of a history."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.state import series
from kitctl.state.history import JobHistory
from kitjob import timeline
from kitjob.timeline import Event, Line, Row, Writer


def job(*lines: Line, end: float = 100.0) -> JobHistory:
    text = json.dumps({"run": "r"}).encode() + b"\n" + timeline.content([Writer(node=0, id="a", time=0.0), *lines])
    return JobHistory(name="job", namespace="default", nodes=1, submitted=10.0, now=end, run="r", lines=text)


def row(time: float, *, step: int, number: int = 1, loss: float | None = None, world: int = 2) -> Row:
    return Row(time=time, seconds=1.0, round=number, world=world, step=step, steps=10, loss=loss)


BEFORE = [row(20.0 + second, step=10 * second + 10, loss=100.0 / (second + 1)) for second in range(10)]
AFTER = [row(40.0 + second, step=10 * second + 60, number=2, loss=5.0, world=3) for second in range(10)]
LOST = Event(time=29.5, what="fault", cause="node 1 is lost", round=1)
AGAIN = Event(time=39.0, what="first step", round=2)


def test_curves_are_interrupted_where_nothing_is_known() -> None:
    found = series.picture([job(*BEFORE, LOST, AGAIN, *AFTER)])
    assert found.metrics == ["loss", "step-time", "world-size"]  # no throughput is known
    (run,) = found.runs
    before, after = run.curves["loss"]
    assert ((before[0].x, before[-1].x), (after[0].x, after[-1].x)) == ((10.0, 19.0), (30.0, 39.0))
    (lost,) = run.marks
    assert (lost.x, lost.kind, lost.text, lost.end) == (19.5, "fault", "node 1 is lost", 29.0)
    assert run.curves["world-size"][0][0].x == 9.0  # stairs begin with the interval
    assert found.bounds("loss") == (5.0, 100.0, False)


def test_by_step_what_is_repeated_lies_over_what_was() -> None:
    found = series.picture([job(*BEFORE, LOST, AGAIN, *AFTER)], by="step", metrics=("loss",))
    before, after = found.runs[0].curves["loss"]
    assert (before[-1].x, after[0].x) == (100, 60)
    assert [mark.x for mark in found.runs[0].marks] == [100]


def test_a_loss_that_falls_far_has_a_logarithmic_scale() -> None:
    fall = [row(20.0 + second, step=second, loss=10.0 ** (-second)) for second in range(5)]
    assert series.picture([job(*fall)]).bounds("loss")[2]


def test_the_last_seconds_alone() -> None:
    found = series.picture([job(*BEFORE, LOST, AGAIN, *AFTER)], since=5.0)
    assert (found.begin, found.runs[0].marks) == (33.0, [])


def test_one_fault_that_two_nodes_tell_is_one_mark() -> None:
    killed = Event(time=29.0, what="fault", cause="was killed by signal 9", node=1)
    (mark,) = series.picture([job(*BEFORE, LOST, killed, AGAIN, *AFTER)]).runs[0].marks
    assert mark.text == "was killed by signal 9"


def test_a_long_curve_keeps_its_extremes() -> None:
    many = [row(20.0 + second, step=second, loss=1000.0 if second == 777 else 1.0) for second in range(5000)]
    (part,) = series.picture([job(*many, end=6000.0)]).runs[0].curves["loss"]
    assert len(part) <= series.MOST + 2
    assert max(one.y for one in part) == 1000.0


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(1, 20))
def test_ticks_are_few_and_within(low: float, span: float, most: int) -> None:
    for found in (series.ticks(low, low + span, most), series.time_ticks(abs(low), abs(low) + span, most)):
        assert len(found) <= most + 1
        assert all(math.isfinite(one) for one in found)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 5, 10]), (0.0, 1.0, [0.0, 0.5, 1.0]), (2, 2, [2]), (4e11, 4e11 + 1e-4, [4e11])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert series.ticks(low, high, 3) == expected


def test_what_lies_between_steps_is_no_part_of_their_time() -> None:
    last = Row(time=31.0, seconds=1.0, round=1, world=2, step=105, steps=5, phases={"SYNCING": 0.5, "FINISHING": 0.5})
    found = series.picture([job(*BEFORE, last)], metrics=("step-time",))
    ((*_, before, end),) = found.runs[0].curves["step-time"]
    assert (before.y, end.y) == (0.1, 0.1)
