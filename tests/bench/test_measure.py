from __future__ import annotations

import random
import statistics

from bench.measure import interval


def test_the_interval_holds_the_median_and_narrows_with_samples() -> None:
    draw = random.Random(1)
    few = [draw.gauss(100, 5) for _ in range(10)]
    many = [draw.gauss(100, 5) for _ in range(400)]
    wide, narrow = interval(few), interval(many)
    assert wide.low <= wide.median <= wide.high
    assert wide.median == statistics.median(few)
    assert narrow.high - narrow.low < wide.high - wide.low


def test_equal_samples_leave_no_doubt() -> None:
    found = interval([2.0] * 5)
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)
