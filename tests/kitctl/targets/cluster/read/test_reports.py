"""Reading a job's status ConfigMap."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.state.facts import Preparation
from kitctl.targets.cluster.read import reports


@pytest.mark.parametrize(
    "config_map", [None, {}, {"data": None}, {"data": {"report": "{"}}, {"data": {"report": "[]"}}]
)
def test_a_missing_report_is_none(config_map: dict[str, Any] | None) -> None:
    assert reports.report(config_map) is None
    assert reports.preparing(config_map) == {}


def test_each_node_that_prepares_has_a_key() -> None:
    note = '{"pod": "job-12-x", "since": 4.5, "what": "installing requirements", "more": 1}'
    data = {"preparing-12": note, "preparing-": note, "preparing-1": "{", "report": "{}", "note": "another"}
    assert reports.preparing({"data": data}) == {12: Preparation("job-12-x", 4.5, "installing requirements")}
