from __future__ import annotations

import math
import random
import statistics

import pytest

from bench.measure import interval


def test_the_interval_has_the_expected_width() -> None:
    draw = random.Random(1)
    spread, count = 5.0, 400
    samples = [draw.gauss(100, spread) for _ in range(count)]
    found = interval(samples)
    assert found.low <= found.median <= found.high
    assert found.median == statistics.median(samples)
    standard_error = spread * math.sqrt(math.pi / 2 / count)  # of the median of normal samples
    assert found.high - found.low == pytest.approx(2 * 1.96 * standard_error, rel=0.4)


def test_equal_samples_have_an_interval_of_width_0() -> None:
    found = interval([2.0] * 5)
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)
