"""The rules tell of every recorded situation what was asked of them."""

from __future__ import annotations

import pytest

from kitctl.state.why.rule import LIMIT
from tests.corpus.__main__ import PAGE, current_page, recorded
from tests.corpus.judge import REFUSED
from tests.corpus.situation import Situation
from tests.corpus.situations import SITUATIONS

README = PAGE.parents[1] / "README.md"


@pytest.mark.parametrize("one", SITUATIONS, ids=lambda one: one.name)
def test_cause_and_fix_are_right(one: Situation) -> None:
    told = recorded(one)
    assert told.cause, told
    assert told.fix is not False, told
    assert len(told.said) <= LIMIT or told.phase == REFUSED
    assert "resources.limits" not in told.advised or one.on == "cluster"


def test_the_page_shows_what_the_rules_tell_now() -> None:
    assert PAGE.read_text() == current_page(), "python -m tests.corpus NAME"


def test_what_readme_shows_of_them_was_told() -> None:
    section = README.read_text(encoding="utf-8").partition("## It explains itself")[2].partition("\n## ")[0]
    shown = [row.split("|")[2].strip() for row in section.split("\n")[2:] if row.startswith("| `")]
    assert len(shown) >= 4
    assert [told for told in shown if told not in PAGE.read_text(encoding="utf-8")] == []


def test_there_are_sixty_situations_and_twenty_healthy_jobs() -> None:
    assert sum(not one.healthy for one in SITUATIONS) >= 60
    assert sum(one.healthy for one in SITUATIONS) >= 20


def test_both_halves_have_situations_of_each_kind() -> None:
    assert {(one.half, one.healthy) for one in SITUATIONS} == {
        (half, healthy) for half in ("first", "second", "blind") for healthy in (False, True)
    }


def test_fifteen_situations_and_three_healthy_jobs_are_made_on_a_cluster() -> None:
    assert sum(one.on == "cluster" and not one.healthy for one in SITUATIONS) >= 15
    assert sum(one.on == "cluster" and one.healthy for one in SITUATIONS) >= 3
