"""Timeouts of collectives."""

from __future__ import annotations

import math

import pytest

from kittrain.rank.world.timeouts import step_timeout


@pytest.mark.parametrize(("hang_timeout", "seconds"), [(None, 300), (60.0, 300), (1200.0, 1200), (math.inf, 24 * 3600)])
def test_the_timeout_is_at_least_the_hang_timeout(hang_timeout: float | None, seconds: int) -> None:
    assert step_timeout(hang_timeout).total_seconds() == seconds
