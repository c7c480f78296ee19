"""What a person who waits is told on the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kitctl.cli.wait import wait_to_the_end
from kitctl.errors import JobCancelled
from kitctl.facts import JobFacts

PENDING = JobFacts(
    name="run", namespace="team", target="here", kind="IndexedJob", nodes="1", wanted=1, created=0.0, places=()
)


def test_each_change_of_phase_or_of_its_reason_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    quota = msgspec.structs.replace(PENDING, note="exceeded quota: small")
    ends = msgspec.structs.replace(quota, end="Cancelled")
    known = iter([PENDING, PENDING, quota, quota, ends])
    target: Any = SimpleNamespace(poll_seconds=0.0, job=lambda _namespace, _name: next(known))
    with pytest.raises(JobCancelled):
        wait_to_the_end(target, "team", "run", None)
    assert capsys.readouterr().err.splitlines() == [
        "run: Pending",
        "run: Pending (exceeded quota: small)",
        "run: Cancelled",
    ]
