"""What metrics say of a node whose history is known."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kitjob.record import replace
from kitjob.report import CopiesReport, MirrorReport, RankProgress
from kitjob.sections import Metrics
from kitjob.timeline import AgentState, Event, Line, Row, State
from kittrain.agent.metrics.exposition import write
from kittrain.agent.metrics.node_metrics import STATES, NodeMetrics
from kittrain.job.env import ALONE, NodeEnv

NODE = NodeEnv(job=replace(ALONE, name="digits", metrics=Metrics(enabled=True)), run_id="run")


def samples(metrics: NodeMetrics, now: float) -> dict[str, float]:
    """All samples by name, with the value of their label."""
    text = write(metrics.families(now), openmetrics=True)
    return {
        "/".join((one.name, *one.labels.values())).removeprefix("kittrain_"): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def told(*lines: Line, node: NodeEnv = NODE) -> NodeMetrics:
    found = NodeMetrics(node)
    for line in lines:
        found.add(line)
    return found


def row(time: float, step: int | None, steps: int, seconds: float = 1.0, **phases: float) -> Row:
    return Row(time=time, seconds=seconds, round=1, world=2, step=step, steps=steps, phases=phases, memory=100)


STARTED: tuple[Line, ...] = (
    AgentState(time=0, state="code"),
    AgentState(time=1, state="start"),
    AgentState(time=3, state="join"),
    Event(time=4, what="joined", round=1, world=2, nodes=2),
    AgentState(time=4, state="ranks"),
    row(6, None, 0, 2.0, STARTING=1.0, JOINING=1.0),
    Event(time=7, what="first step", round=1),
    row(8, 2, 0, 2.0, PREPARING=0.5, DATA=0.5, FORWARD=1.0),
    row(9, 12, 10, DATA=0.25, FORWARD=0.25, BACKWARD=0.5),
)
FAULT: tuple[Line, ...] = (
    row(10, 22, 10, FORWARD=1.0),
    row(11, 22, 0, FORWARD=1.0),  # the rank dies in a step
    AgentState(time=11, state="stop"),
    Event(time=11, what="fault", round=1),
    AgentState(time=12, state="join"),
    Event(time=12.5, what="joined", round=2, world=1, nodes=1),
    AgentState(time=12.5, state="ranks"),
    row(13.5, None, 0, STARTING=0.5, RESTORING=0.5),
    Event(time=14, what="first step", round=2),
    Event(time=14.5, what="recovered", round=2, parts={"stop": 1.0, "form": 0.5}, lost_steps=10),
    row(14.5, 14, 0, FORWARD=1.0),
    row(15.5, 24, 10, FORWARD=1.0),
)


def bad(found: dict[str, float]) -> dict[str, float]:
    return {name.partition("/")[2]: one for name, one in found.items() if name.startswith("badput_seconds_total/")}


def test_a_start() -> None:
    found = samples(told(*STARTED), 9)
    assert found["goodput_seconds_total"] == pytest.approx(0.67 + 0.75, abs=0.01)  # 2/3 of what followed the first step
    assert bad(found) == {
        "image_and_code": 1.0,
        "start_and_join": pytest.approx(2.0 + 2.0 + 0.5 + 0.5),
        "waiting_for_a_peer": 1.0,
        "data_wait": pytest.approx(0.333 + 0.25, abs=0.01),
        "repeated_steps": 0.0,
    }
    assert (found["step"], found["world_size"], found["nodes"]) == (12, 2, 2)
    assert found["data_wait_seconds_total"] == 0.75
    assert (found["step_seconds_count"], found["step_seconds_sum"]) == (10, 1.0)
    assert found["step_seconds_bucket/0.1"] == 10
    assert found["step_seconds_bucket/0.05"] == 0


def test_a_fault_and_the_steps_that_it_repeats() -> None:
    found = samples(told(*STARTED, *FAULT), 15.5)
    assert (found["faults_total"], found["recoveries_total"], found["lost_steps_total"]) == (1, 1, 10)
    assert found["recovery_seconds_total/form"] == 0.5
    seconds = bad(found)
    assert seconds["recovery"] == pytest.approx(1 + 1.5 + 1 + 0.5)  # the step in which it died, and up to the next one
    assert seconds["repeated_steps"] == pytest.approx(0.5 + 0.8)  # steps 13 to 22
    assert found["goodput_seconds_total"] == pytest.approx(1.42 + 1 + 0.2, abs=0.01)


def test_every_second_is_counted_once() -> None:
    lines = (*STARTED, *FAULT, AgentState(time=15.5, state="barrier"), AgentState(time=17, state="exit"))
    for now in (17.0, 20.0):
        found = samples(told(*lines), now)
        assert found["goodput_seconds_total"] + sum(bad(found).values()) == pytest.approx(now)


def test_no_counter_ever_falls() -> None:
    metrics, last = NodeMetrics(NODE), dict[str, float]()
    for line in (*STARTED, *FAULT, AgentState(time=15.5, state="barrier"), AgentState(time=17, state="exit")):
        metrics.add(line)
        now = samples(metrics, line.time if isinstance(line, Event | Row | AgentState) else 0)
        for name, value in last.items():
            if "_total" in name or "_bucket" in name:
                assert now[name] >= value - 1e-9, name
        last = now


def test_all_states_of_an_agent_count() -> None:
    assert STATES.keys() == {*get_args(State)} - {"ranks"}


def test_a_hang_is_idle_time() -> None:
    found = samples(
        told(*STARTED, row(40, 12, 0, 31.0, BACKWARD=31.0), Event(time=40, what="fault", outcome="hang")), 40
    )
    assert bad(found)["idle_after_a_hang"] == 31.0


def test_a_restarted_agent_is_in_a_recovery_at_once() -> None:
    node = NodeEnv(job=NODE.job, agent_restarts=1)
    found = samples(told(*STARTED[:4], node=node), 4)
    assert bad(found) == {"recovery": 4.0}


def test_a_script_with_a_loop_of_its_own() -> None:
    lines = (
        *STARTED[:5],
        Event(time=5, what="first step", round=1),
        row(5, 1, 0, SCRIPT=0.5, PREPARING=0.5),
        row(6, 11, 10, SCRIPT=1.0),
    )
    found = samples(told(*lines), 6)
    assert "data_wait_seconds_total" not in found  # it is not known
    assert "samples_total" not in found
    assert found["step_seconds_count"] == 10


def progress(**facts: Any) -> RankProgress:
    return RankProgress(**facts)


def test_what_rank_0_reports_is_added_up_over_its_restarts() -> None:
    metrics = told(*STARTED)
    metrics.progress(progress(step=12, samples=100, loss=0.5, resumed_at=7.0, snapshot_bytes=10, snapshot_time=8.0))
    metrics.progress(
        progress(step=14, samples=120, not_finite_steps=1, resumed_at=7.0, snapshot_bytes=10, snapshot_time=8.0)
    )
    found = samples(metrics, 10)
    assert (found["samples_total"], found["non_finite_steps_total"], found["snapshot_bytes_total"]) == (120, 1, 10)
    assert "loss" not in found  # it is not finite
    metrics.add(Event(time=12.5, what="joined", round=2, world=1, nodes=1))
    assert "samples_total" not in samples(metrics, 12.5)  # another node may have rank 0 now
    metrics.progress(
        progress(step=14, samples=20, not_finite_steps=1, resumed_at=14.0, snapshot_bytes=20, snapshot_time=15.0)
    )
    found = samples(metrics, 16)
    assert (found["samples_total"], found["non_finite_steps_total"], found["snapshot_bytes_total"]) == (140, 2, 30)


def test_series_are_few_and_have_no_text_of_a_script() -> None:
    """Causes, losses' names and exceptions of a script are in the history: none of them is a label."""
    text = "Ada's loss exploded " * 10
    lines = (
        *STARTED,
        *(
            line
            for number in range(50)
            for line in (
                Event(time=10, what="fault", cause=f"{text}{number}"),
                Event(time=11, what="recovered", cause=text, parts={"stop": 1.0, "form": 1.0}, lost_steps=1),
            )
        ),
    )
    metrics = told(*lines)
    metrics.progress(progress(step=1, metrics={text: 1.0}, warning=text))
    exposition = write(metrics.families(12), openmetrics=True)
    assert "Ada" not in exposition
    assert len([line for line in exposition.splitlines() if not line.startswith("#")]) < 80


def test_copies_of_snapshots_are_told_as_they_are_when_somebody_asks() -> None:
    metrics = told(*STARTED)
    mirror = MirrorReport(step=100, sent=300, behind=2, behind_steps=40, behind_since=20.0, warning="gone")
    metrics.stored = lambda: (mirror, CopiesReport(step=140, have=1, wanted=2, copied_step=120))
    assert {name: one for name, one in samples(metrics, 50.0).items() if "mirror" in name or "cop" in name} == {
        "mirror_up": 0.0,
        "mirror_uploaded_bytes_total": 300.0,
        "mirror_step": 100.0,
        "mirror_lag_seconds": 30.0,
        "mirror_lag_steps": 40.0,
        "snapshot_copies": 1.0,
        "snapshot_copies_wanted": 2.0,
        "snapshot_copied_step": 120.0,
    }
    metrics.stored = lambda: (MirrorReport(step=140), None)
    assert (samples(metrics, 50.0)["mirror_lag_seconds"], samples(metrics, 50.0)["mirror_up"]) == (0.0, 1.0)


def test_how_far_a_mirror_is_that_was_never_reached_is_not_known() -> None:
    metrics = told(*STARTED)
    metrics.stored = lambda: (MirrorReport(warning="does not answer"), None)
    found = samples(metrics, 50.0)
    assert found["mirror_up"] == 0.0
    assert "mirror_lag_seconds" not in found
