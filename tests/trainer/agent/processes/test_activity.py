"""When a rank without progress counts as busy."""

from __future__ import annotations

import pytest

from kittrain.agent.processes.activity import Activity
from kittrain.system.processes import Usage


def after(*samples: Usage) -> Activity:
    """A rank with one sample per second."""
    activity = Activity()
    for second, usage in enumerate(samples):
        activity.add(usage, 100.0 + second)
    return activity


@pytest.mark.parametrize(
    ("seconds", "io_bytes", "busy"),
    [
        (0.01, 0, False),  # cores: waiting in gloo
        (0.02, 4096, False),  # and writing a log line
        (0.06, 0, True),
        (1.0, 0, True),
        (0.0, 1 << 20, True),  # a slow disk
    ],
)
def test_a_rank_is_busy_if_it_uses_cpu_or_io(seconds: float, io_bytes: int, *, busy: bool) -> None:
    activity = after(*(Usage(seconds=40 + seconds * count, io_bytes=io_bytes * count) for count in range(6)))
    assert activity.busy is busy
    assert activity.cores == pytest.approx(seconds)


def test_a_runnable_rank_without_a_cpu_is_busy() -> None:
    assert after(Usage(), Usage(runnable=True), Usage(runnable=True)).busy
    assert not after(Usage(), Usage(runnable=True), Usage()).busy


def test_only_the_last_seconds_count() -> None:
    activity = after(*(Usage(seconds=count) for count in range(6)))
    for second in range(6):
        activity.add(Usage(seconds=5), 106.0 + second)
    assert not activity.busy


@pytest.mark.parametrize("samples", [(), (Usage(seconds=9.0),)])
def test_too_few_samples_are_not_busy(samples: tuple[Usage, ...]) -> None:
    assert not after(*samples).busy


def test_without_usage_a_rank_is_not_busy() -> None:
    activity = after(Usage(), Usage(seconds=1.0))
    activity.add(None, 102.0)
    assert not activity.busy
