"""What `kitctl wait` prints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kitctl.api.job import Job
from kitctl.base.errors import JobCancelled
from kitctl.cli.commands.wait import wait_until_end
from kitctl.state.facts import JobFacts

PENDING = JobFacts(
    name="run",
    namespace="team",
    target="here",
    kind="IndexedJob",
    node_range="1",
    desired_nodes=1,
    created=0.0,
    nodes=(),
)


def test_each_change_of_phase_or_reason_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    quota = msgspec.structs.replace(PENDING, note="exceeded quota: small")
    ends = msgspec.structs.replace(quota, result="Cancelled")
    known = iter([PENDING, PENDING, quota, quota, ends])
    target: Any = SimpleNamespace(poll_seconds=0.0, job=lambda _namespace, _name: next(known))
    with pytest.raises(JobCancelled):
        wait_until_end(Job(target=target, namespace="team", name="run"), None)
    assert capsys.readouterr().err.splitlines() == [
        "run: Pending",
        "run: Pending (exceeded quota: small)",
        "run: Cancelled",
    ]
