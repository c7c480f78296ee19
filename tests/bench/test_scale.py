from __future__ import annotations

from dataclasses import replace

import pytest

from bench.scale import Trial, latest, measure, row, shown, wanted


def test_the_last_one_counts_and_one_that_never_came_counts_for_all() -> None:
    assert latest([(1.0, 5.0), (2.0, 4.0)], 0) == 2.0
    assert latest([(1.0, 5.0), (2.0, 4.0)], 1) == 5.0
    assert latest([(1.0, 5.0), (2.0, None)], 1) is None


def test_a_median_is_told_unless_half_of_it_never_came_about() -> None:
    assert shown([3.0, None, 1.0], 1) == "3.0"
    assert shown([3.0, None], 1) == "-"


def test_a_round_that_was_never_formed_is_told_by_its_limit() -> None:
    trials = [
        Trial(rival="stock c10d", size=512, form=None, cpu=0.512, memory=1024.0),
        Trial(rival="kitctl", size=512, form=1.0, cpu=0.512, memory=1024.0),
    ]
    assert row(trials, 512, "stock c10d") == ("512", "stock c10d", "1", "over 120", "1.00", "2", "-", "-", "-")


def test_whoever_has_not_finished_once_is_not_asked_again() -> None:
    finished = Trial(rival="kitctl", size=8, form=1.0, cpu=0.0, memory=0.0)
    assert wanted([finished], 1)
    assert not wanted([finished], 0)
    assert not wanted([finished, replace(finished, form=None)], 2)


@pytest.mark.slow
def test_agents_form_a_round_and_the_next_one_when_one_is_dead() -> None:
    trial = measure("kitctl", 4)  # stock's waits would take a minute
    assert trial.form is not None
    assert trial.operations is not None
    assert trial.notice is not None
    assert trial.reform is not None
