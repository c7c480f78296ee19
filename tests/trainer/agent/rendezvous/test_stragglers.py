"""Telling stragglers from ranks that wait for them."""

from __future__ import annotations

import pytest

from kittrain.agent.rendezvous.stragglers import StragglerDetector


class Ranks:
    """Ranks that take steps together, checked every five seconds."""

    def __init__(self, *busy: float, step: float = 1.0) -> None:
        self.detector = StragglerDetector()
        self._busy = busy
        self._step = step
        self._checks = 0
        self.check()

    def check(self) -> dict[int, float]:
        steps = round(5 * self._checks / self._step)
        progress = {rank: (steps, busy * steps) for rank, busy in enumerate(self._busy)}
        self.detector.update(progress, 5.0 * self._checks)
        self._checks += 1
        return self.detector.slow()


def test_a_rank_that_stays_slow_is_reported_with_the_ratio_of_its_steps() -> None:
    ranks = Ranks(0.2, 0.2, 0.6, 0.2)
    assert [ranks.check(), ranks.check()] == [{}, {}]
    assert ranks.check() == {2: 1.67}
    assert ranks.detector.busy() == {0: 0.2, 1: 0.2, 2: pytest.approx(0.6), 3: 0.2}


def test_a_little_more_work_in_a_long_step_is_not_slow() -> None:
    ranks = Ranks(0.01, 0.02)
    assert [ranks.check() for _ in range(5)] == [{}] * 5


def test_ranks_without_finished_steps_are_not_compared() -> None:
    ranks = Ranks(0.2, 0.6, step=1000)
    assert [ranks.check() for _ in range(5)] == [{}] * 5


def test_a_reset_forgets_timings_and_slow_checks() -> None:
    ranks = Ranks(0.2, 0.2, 0.6)
    ranks.check()
    ranks.check()
    ranks.detector.reset()
    assert ranks.detector.busy() == {}
    assert ranks.check() == {}


def test_a_single_rank_is_never_slow() -> None:
    ranks = Ranks(0.9)
    assert [ranks.check() for _ in range(4)] == [{}] * 4
