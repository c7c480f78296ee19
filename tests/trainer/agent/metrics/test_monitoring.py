"""What Prometheus and Grafana are given for the metrics of jobs asks for what agents serve."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from kitctl.base import names
from kitctl.kinds import KINDS
from kitctl.spec.job_spec import JobSpec
from kitjob.report import CopiesReport, MirrorReport, RankProgress
from kitjob.sections import Metrics
from kitjob.timeline import Event
from tests.kitctl.rendered import job_of
from tests.trainer.agent.metrics.test_node_metrics import FAULT, STARTED, samples, told

MONITORING = Path(__file__).parents[4] / "charts" / "platform" / "files"
DOCS = Path(__file__).parents[4] / "docs" / "metrics.md"
METRIC = re.compile(r"kittrain_\w+")


def served() -> set[str]:
    """All metrics of a node that has rank 0, and has seen everything."""
    metrics = told(*STARTED, *FAULT, Event(time=15, what="snapshot", seconds=1.0, parts={"stall": 0.5}))
    speed: dict[str, Any] = {"samples": 8, "samples_per_second": 2.0}
    known = RankProgress(step=1, loss=1.0, epoch=1, total_steps=9, snapshot_step=1, snapshot_time=1.0, **speed)
    metrics.progress(known)
    metrics.stored = lambda: (MirrorReport(step=1), CopiesReport(copied_step=1))
    return {f"kittrain_{name.partition('/')[0]}" for name in samples(metrics, 16)}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def test_the_dashboard_asks_for_metrics_that_are_served() -> None:
    text = (MONITORING / "dashboard.json").read_text()
    assert len(set(METRIC.findall(text))) > 10
    assert set(METRIC.findall(text)) <= served()


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in (one["gridPos"] for one in panels)
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_docs_list_the_metrics_that_are_served() -> None:
    documented = set(METRIC.findall(DOCS.read_text()))
    histogram = {f"kittrain_step_seconds_{part}" for part in ("bucket", "count", "sum")}
    assert documented == served() - histogram | {"kittrain_step_seconds"}


def test_the_pod_monitor_finds_the_pods_of_a_job() -> None:
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())
    for kind, entry in KINDS.items():
        job = job_of(JobSpec(name="job", kind=kind, metrics=Metrics(enabled=True)))
        metadata = entry.pod_template(job)["metadata"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= metadata["labels"].items()
        assert metadata["annotations"][names.ANNOTATION_METRICS_PORT] == "29401"
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert re.fullmatch(endpoint["relabelings"][1]["regex"], entry.container)


def test_the_pod_monitor_makes_addresses() -> None:
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    rules = [one for one in endpoint["relabelings"] if one.get("targetLabel") == "__address__"]
    for address, expected in (("10.0.0.3", "10.0.0.3:29401"), ("fd00::3", "[fd00::3]:29401")):
        found = [
            match.expand(rule["replacement"].replace("$", "\\"))
            for rule in rules
            if (match := re.fullmatch(rule["regex"], f"{address};29401"))
        ]
        assert found == [expected]
