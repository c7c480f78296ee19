"""A drain request aborts interruptible waits, and is only recorded elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from kittrain.agent.rounds.drain import Drain, DrainRequested


@pytest.fixture
def drain() -> Iterator[Drain]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    drain = Drain()
    drain.install()
    yield drain
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruptible_wait_is_aborted(drain: Drain, number: signal.Signals) -> None:
    def wait() -> None:
        os.kill(os.getpid(), number)
        signal.pause()

    with pytest.raises(DrainRequested), drain.interruptible():
        wait()


def test_elsewhere_it_is_recorded_and_the_next_wait_does_not_start(drain: Drain) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    noted = drain.requested_at
    os.kill(os.getpid(), signal.SIGTERM)
    assert drain.requested
    assert drain.requested_at == noted
    with pytest.raises(DrainRequested), drain.interruptible():
        pytest.fail("the wait began")


def test_the_clean_up_of_a_wait_is_not_interrupted(drain: Drain) -> None:
    cleaned = []

    def wait() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)

    with pytest.raises(DrainRequested), drain.interruptible():
        wait()
    assert cleaned
