"""What ends of ranks mean for a node that was told to leave."""

from __future__ import annotations

import pytest

from kittrain.node.leaving import Codes, Leaving


def leaving(before: Codes) -> Leaving:
    """Of ranks that were so when their node was told to leave."""
    rules = Leaving(patience=10.0)
    rules.begin(len(before))
    rules.look(before, told=False)
    return rules


@pytest.mark.parametrize(
    ("before", "after", "unfinished"),
    [
        ([None, None], [0, 0], True),
        ([0, None], [0, 0], True),
        ([0, 0], [0, 0], False),
        ([None, None], [0, None], False),  # not yet
        ([None, None], [0, 75], False),  # told by the code
        ([None, None], [0, 1], False),
    ],
)
def test_ranks_that_ended_with_0_since_they_were_told_have_not_finished(
    before: Codes, after: Codes, *, unfinished: bool
) -> None:
    rules = leaving(before)
    rules.look(after, told=True)
    assert rules.unfinished(after) == unfinished


def test_a_node_that_is_told_before_anybody_has_looked_has_not_finished() -> None:
    rules = leaving([0])
    rules.begin(1)
    rules.look([0], told=True)
    assert rules.unfinished([0])


@pytest.mark.parametrize(
    ("codes", "told", "pending"),
    [
        ([None, None], True, True),
        ([None, 0], True, True),
        ([None, 75], True, True),
        ([None, 75], False, True),  # another node was told
        ([None, 0], False, False),
        ([0, 0], True, False),
        ([None, 1], True, False),  # it could not agree with the others
        ([None, -15], True, False),
    ],
)
def test_ranks_are_waited_for_while_they_may_save(codes: Codes, *, told: bool, pending: bool) -> None:
    assert leaving(codes).pending(codes, told=told) == pending


def test_their_time_begins_with_the_first_question_and_anew_with_new_ranks() -> None:
    rules = leaving([None])
    assert not rules.late(100.0)
    assert not rules.late(110.0)
    assert rules.late(110.1)
    rules.begin(1)
    assert not rules.late(200.0)
