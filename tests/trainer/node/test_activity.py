"""When a rank that does not move works nevertheless."""

from __future__ import annotations

import pytest

from kittrain.node.activity import Activity
from kittrain.system.processes import Usage


def after(*samples: Usage) -> Activity:
    """A rank of which one sample a second was taken."""
    activity = Activity()
    for second, usage in enumerate(samples):
        activity.note(usage, 100.0 + second)
    return activity


@pytest.mark.parametrize(
    ("seconds", "moved", "busy"),
    [
        (0.01, 0, False),  # a second: what waiting in gloo takes
        (0.02, 4096, False),  # and a line of a log
        (0.06, 0, True),
        (1.0, 0, True),
        (0.0, 1 << 20, True),  # a slow disk
    ],
)
def test_a_rank_works_if_it_uses_a_processor_or_moves_bytes(seconds: float, moved: int, *, busy: bool) -> None:
    activity = after(*(Usage(seconds=40 + seconds * count, moved=moved * count) for count in range(6)))
    assert activity.busy is busy
    assert activity.cores == pytest.approx(seconds)


def test_one_that_wants_to_and_does_not_get_there_works_too() -> None:
    assert after(Usage(), Usage(wanting=True), Usage(wanting=True)).busy
    assert not after(Usage(), Usage(wanting=True), Usage()).busy


def test_only_the_last_seconds_count() -> None:
    activity = after(*(Usage(seconds=count) for count in range(6)))
    for second in range(6):
        activity.note(Usage(seconds=5), 106.0 + second)
    assert not activity.busy


@pytest.mark.parametrize("samples", [(), (Usage(seconds=9.0),)])
def test_of_too_little_nothing_is_concluded(samples: tuple[Usage, ...]) -> None:
    assert not after(*samples).busy


def test_a_rank_that_cannot_be_seen_does_not_work() -> None:
    activity = after(Usage(), Usage(seconds=1.0))
    activity.note(None, 102.0)
    assert not activity.busy
