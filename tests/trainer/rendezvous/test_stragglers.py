"""Who is slow, and who only waits."""

from __future__ import annotations

import pytest

from kittrain.rendezvous.stragglers import Tempo


class Ranks:
    """Ranks that take one step together each second of a looked-at interval of five."""

    def __init__(self, *busy: float, step: float = 1.0) -> None:
        self.tempo = Tempo()
        self._busy = busy
        self._step = step
        self._looks = 0
        self.look()

    def look(self) -> dict[int, float]:
        steps = round(5 * self._looks / self._step)
        told = {rank: (steps, busy * steps) for rank, busy in enumerate(self._busy)}
        self.tempo.hear(told, 5.0 * self._looks)
        self._looks += 1
        return self.tempo.slow()


def test_a_rank_that_stays_slow_is_named_with_how_much_longer_its_steps_take() -> None:
    ranks = Ranks(0.2, 0.2, 0.6, 0.2)
    assert [ranks.look(), ranks.look()] == [{}, {}]
    assert ranks.look() == {2: 1.67}
    assert ranks.tempo.busy() == {0: 0.2, 1: 0.2, 2: pytest.approx(0.6), 3: 0.2}


def test_a_little_more_work_in_a_long_step_is_not_slow() -> None:
    ranks = Ranks(0.01, 0.02)
    assert [ranks.look() for _ in range(5)] == [{}] * 5


def test_ranks_that_take_no_step_are_not_judged() -> None:
    ranks = Ranks(0.2, 0.6, step=1000)
    assert [ranks.look() for _ in range(5)] == [{}] * 5


def test_who_was_slow_for_a_moment_is_forgotten_and_so_is_a_round() -> None:
    ranks = Ranks(0.2, 0.2, 0.6)
    ranks.look()
    ranks.look()
    ranks.tempo.begin()
    assert ranks.tempo.busy() == {}
    assert ranks.look() == {}


def test_a_lone_rank_is_never_slow() -> None:
    ranks = Ranks(0.9)
    assert [ranks.look() for _ in range(4)] == [{}] * 4
