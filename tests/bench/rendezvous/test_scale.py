from __future__ import annotations

from dataclasses import replace

import pytest

from bench.rendezvous.scale import Trial, latest, measure, median_text, needs_trial, row


def test_the_last_agent_counts_and_is_none_if_any_did_not_finish() -> None:
    assert latest([(1.0, 5.0), (2.0, 4.0)], 0) == 2.0
    assert latest([(1.0, 5.0), (2.0, 4.0)], 1) == 5.0
    assert latest([(1.0, 5.0), (2.0, None)], 1) is None


def test_the_median_is_missing_if_half_of_the_values_are() -> None:
    assert median_text([3.0, None, 1.0], 1) == "3.0"
    assert median_text([3.0, None], 1) == "-"


def test_a_round_that_was_not_formed_is_shown_by_the_limit() -> None:
    trials = [
        Trial(rival="stock c10d", size=512, form=None, cpu=0.512, memory=1024.0),
        Trial(rival="kitctl", size=512, form=1.0, cpu=0.512, memory=1024.0),
    ]
    assert row(trials, 512, "stock c10d") == ("512", "stock c10d", "1", "over 120", "1.00", "2", "-", "-", "-")


def test_no_more_trials_after_one_that_did_not_finish() -> None:
    finished = Trial(rival="kitctl", size=8, form=1.0, cpu=0.0, memory=0.0)
    assert needs_trial([finished], 1)
    assert not needs_trial([finished], 0)
    assert not needs_trial([finished, replace(finished, form=None)], 2)


@pytest.mark.wide
@pytest.mark.slow
def test_agents_form_a_round_and_the_next_one_when_one_is_dead() -> None:
    trial = measure("kitctl", 4)  # stock's waits would take a minute
    assert trial.form is not None
    assert trial.operations is not None
    assert trial.notice is not None
    assert trial.reform is not None
