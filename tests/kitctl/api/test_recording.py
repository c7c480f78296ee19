"""The lines of a log that a report has of a failure."""

from __future__ import annotations

import pytest

from kitctl.api.recording import before_failure
from kitctl.state.facts import JobFacts
from kitctl.state.logs import Line
from kitctl.state.phase import derive
from kitjob.report import Termination

LINES = [Line(f"2026-01-01T00:00:0{second}.000000Z", 0, f"[rank 0] line {second}") for second in (1, 3)]


@pytest.mark.parametrize(("moment", "kept"), [(1767225602.0, LINES[:1]), (0.0, LINES)])
def test_lines_count_until_the_failure_and_all_of_them_where_its_time_is_unknown(
    moment: float, kept: list[Line]
) -> None:
    failure = Termination(outcome="fatal", reason="rank 0 failed", node=0, time=moment, error="KeyError: 'x'")
    job = JobFacts(
        name="digits", namespace="default", target="local", kind="processes", node_range="1", desired_nodes=1,
        created=0.0, result="Failed", failure=failure,
    )  # fmt: skip
    assert before_failure(derive(job), LINES) == kept
