from __future__ import annotations

import pytest

from kitctl.targets.cluster.connection import retries


def test_each_delay_is_twice_the_previous_one_up_to_a_limit() -> None:
    longest = [retries.pause(attempt, 0.0, 0.0) for attempt in range(8)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert retries.pause(10_000, 0.0, 0.0) == 8.0


def test_jitter_subtracts_up_to_half() -> None:
    assert retries.pause(3, 0.0, 1.0) == 1.0
    assert 1.0 < retries.pause(3, 0.0, 0.5) < 2.0


def test_retry_after_is_a_minimum() -> None:
    assert retries.pause(0, 7.0, 0.5) == 7.0
    assert retries.pause(5, 1.0, 0.0) == 8.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("86400", 60.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("", 0.0), ("-1", 0.0)]
)
def test_retry_after(text: str, seconds: float) -> None:
    assert retries.retry_after({"Retry-After": text} if text else {}) == seconds
