"""A limit of time for a whole call."""

from __future__ import annotations

import threading

import pytest

from kitctl.base.deadline import within


def test_a_result_and_an_error_are_the_calls_own() -> None:
    assert within(60, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)


def test_a_call_that_takes_longer_is_a_timeout_and_its_result_is_dropped() -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError, match="no whole answer within 0 s"):
        within(0.05, ended.wait)
    ended.set()


def test_a_limit_that_is_over_is_a_timeout() -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError):
        within(-1.0, ended.wait)
    ended.set()
