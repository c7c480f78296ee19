"""Reading a job's status ConfigMap."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.targets.cluster.read import reports
from kitjob import typed
from kitjob.report import Preparation, Progress, Report


@pytest.mark.parametrize(
    "config_map", [None, {}, {"data": None}, {"data": {"report": "{"}}, {"data": {"report": "[]"}}]
)
def test_a_missing_report_is_none(config_map: dict[str, Any] | None) -> None:
    assert reports.report(config_map) is None
    assert reports.preparing(config_map) == {}


def test_each_node_that_prepares_has_a_key() -> None:
    note = '{"pod": "job-12-x", "since": 4.5, "what": "installing requirements", "more": 1}'
    data = {"preparing-12": note, "preparing-": note, "preparing-1": "{", "report": "{}", "note": "another"}
    assert reports.preparing({"data": data}) == {
        12: Preparation(pod="job-12-x", since=4.5, what="installing requirements")
    }


def test_a_metric_that_is_no_number_hides_no_other() -> None:
    text = typed.dump(Report(progress=Progress(step=3, metrics={"accuracy": None, "f1": 0.5}))).decode()
    found = reports.report({"data": {"report": text}})
    assert found
    assert found.progress.metrics == {"accuracy": None, "f1": 0.5}
