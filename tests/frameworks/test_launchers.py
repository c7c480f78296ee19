"""A launcher of a framework that each rank starts."""

from __future__ import annotations

from tests.frameworks.jobs import kitctl
from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import SCRIPTS

pytestmark = MARKS


def test_what_accelerate_launches_on_cpus_takes_the_ranks_places_and_is_no_warning() -> None:
    kitctl("submit", "--nodes", "3", "--name", "launches", "--", str(SCRIPTS / "launches.py"))
    try:
        kitctl("wait", "launches", "--timeout", "600s")
        logs = kitctl("logs", "launches")
        assert [f"{rank} of 3 meets" in logs for rank in range(3)] == [True] * 3, logs
        assert "group of its own" not in logs + kitctl("status", "launches")
    finally:
        kitctl("delete", "launches")
