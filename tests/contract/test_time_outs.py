"""The account of a job and the metrics of its agents call a collective's time-out the same: idle after a hang."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kitctl.state.goodput.account import account
from kitctl.state.history import Attempt, JobHistory
from kitjob import timeline
from kitjob.record import replace
from kitjob.timeline import AgentState, Event, Line, Row, Writer
from kittrain.agent.metrics.exposition import write
from kittrain.agent.metrics.node_metrics import NodeMetrics
from kittrain.job.env import ALONE, NodeEnv

NODE = NodeEnv(job=replace(ALONE, name="job"), run_id="r")
OWN = "rank 0 lost its peers (RuntimeError: Timed out waiting 20000ms for recv operation to complete)"
OTHERS = "the ranks of node 1, pod job-1 timed out after 20000 ms in a collective"


def lines(cause: str, *, phase: str, stepped: bool) -> list[Line]:
    """Ranks that move for 18 s, wait for 20 s, and are started again."""
    first = [Event(time=2.0, what="first step", round=1)] if stepped else []
    return [
        Writer(node=0, id="a", time=0.0),
        AgentState(time=0.0, state="code"),
        AgentState(time=0.0, state="start"),
        AgentState(time=1.0, state="join"),
        Event(time=2.0, what="joined", round=1, world=2, nodes=2),
        AgentState(time=2.0, state="ranks"),
        *first,
        *(
            Row(time=3.0 + at, seconds=1.0, round=1, world=2, phases={phase: 1.0}, phase=phase,
                step=min(at + 1, 18) if stepped else None, steps=int(stepped and at < 18))
            for at in range(38)
        ),
        Event(time=40.0, what="fault", round=1, cause=cause, since=20.0 if stepped else None),
        AgentState(time=40.0, state="stop"),
        AgentState(time=41.0, state="exit"),
        Event(time=41.0, what="ended", outcome="fatal", cause=cause),
    ]  # fmt: skip


@pytest.mark.parametrize("cause", [OWN, OTHERS])
@pytest.mark.parametrize(("phase", "stepped"), [("SCRIPT", True), ("BACKWARD", True), ("PREPARING", False)])
def test_both_count_the_same_seconds_as_idle(cause: str, phase: str, stepped: bool) -> None:  # noqa: FBT001
    known = lines(cause, phase=phase, stepped=stepped)
    content = b"".join([json.dumps({"run": "r"}).encode() + b"\n", timeline.content(known)])
    attempt = Attempt(node=0, started=0.0, ended=41.0)
    facts = {"name": "job", "namespace": "default", "nodes": 1, "submitted": 0.0, "now": 41.0, "ended": 41.0}
    spending = account(JobHistory(**facts, run="r", attempts=(attempt,), lines=content))  # type: ignore[arg-type]
    spent = {one.name: one.seconds for one in spending.buckets}

    metrics, last = NodeMetrics(NODE), 0.0
    for line in known:
        metrics.add(line)
        seen = sum(_seconds(metrics, getattr(line, "time", 0.0)).values())
        assert seen >= last - 1e-9, "no counter falls"
        last = seen
    found = _seconds(metrics, 41.0)

    assert found["idle_after_a_hang"] == pytest.approx(spent["idle after a hang"], abs=0.05)
    assert found["idle_after_a_hang"] == pytest.approx(20.0, abs=0.05)
    assert found.get("goodput", 0.0) == pytest.approx(spent.get("training", 0.0), abs=1.1)
    assert found.get("recovery", 0.0) <= 1.0, "nothing but the stop"
    assert sum(found.values()) == pytest.approx(41.0)


def _seconds(metrics: NodeMetrics, now: float) -> dict[str, float]:
    text = write(metrics.families(now), openmetrics=False)
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {
        one.labels.get("cause", "goodput"): one.value
        for one in samples
        if one.name in {"kittrain_goodput_seconds_total", "kittrain_badput_seconds_total"}
    }
