"""Errors of the code that come again after as many steps end a job; whatever may pass does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kittrain.outcome.failures import Failure
from kittrain.outcome.repeats import MOST, Place, Repeats

TRACEBACK = '  File "/a/train.py", line 3, in main\n'
FIRST = Failure(
    rank=0, exit_code=1, error="AttributeError: 'Net' object has no attribute 'head'", traceback=TRACEBACK, time=1
)
PLACE = Place(world=2, steps=400)


def again(failure: Failure, place: Place = PLACE, *, first: Failure = FIRST) -> bool:
    repeats = Repeats()
    assert not repeats.come_again(first, lambda: PLACE)
    repeats.note([first], lambda: PLACE)
    return repeats.come_again(failure, lambda: place)


def test_an_error_comes_again_at_the_same_place_on_any_rank_at_any_time() -> None:
    assert again(replace(FIRST, time=9, rank=1))
    objects = [replace(FIRST, error=f"TypeError: <Net at {at}> is no number") for at in ("0x7f12", "0x7fab")]
    assert again(objects[1], first=objects[0]), "objects are elsewhere each time"


def test_ranks_that_call_different_collectives_crash_again_where_they_did() -> None:
    where = "killed by SIGABRT at train.py:8 in evaluate: "
    error = f"{where}op.preamble.length <= op.nbytes. 652 vs 8. Received data size doesn't match expected size."
    crash = replace(FIRST, error=error, exit_code=-6, traceback="")
    assert again(crash, first=crash)
    assert not again(crash, replace(PLACE, steps=401), first=crash)
    other = replace(crash, error=f"{where}terminate called")
    assert not again(other, first=other), "native code may crash by chance"


@pytest.mark.parametrize(
    "failure",
    [
        replace(FIRST, traceback=TRACEBACK.replace("3", "4")),
        replace(FIRST, error=FIRST.error.replace("head", "body")),
    ],
)
def test_another_error_or_line_is_another_one(failure: Failure) -> None:
    assert not again(failure)


@pytest.mark.parametrize(
    "place",
    [
        replace(PLACE, steps=401),
        replace(PLACE, world=3),
        replace(PLACE, loaded=1),
        replace(PLACE, newest=(1, 100)),
        replace(PLACE, newest=None),
    ],
)
def test_ranks_that_have_come_further_or_begun_elsewhere_may_succeed(place: Place) -> None:
    assert not again(FIRST, place)


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 'rows'",  # of an answer
        "TypeError: f() got an unexpected keyword argument 'lr'",  # the table of causes tells whether that is final
        "AttributeError: 'Socket' object has no attribute 'peer'",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "killed by SIGKILL",
    ],
)
def test_what_may_pass_is_not_noted(error: str) -> None:
    failure = replace(FIRST, error=error)
    assert not again(failure, first=failure)


def test_other_rounds_in_between_change_nothing() -> None:
    """Each rank has the error, and that which is stopped first differs from round to round."""
    repeats, other = Repeats(), replace(FIRST, error="killed by SIGKILL", traceback="")
    repeats.note([other, FIRST], lambda: PLACE)
    repeats.note([other], lambda: replace(PLACE, steps=7))
    assert repeats.come_again(FIRST, lambda: PLACE)


def test_few_are_remembered_and_a_place_is_looked_at_only_for_errors_of_the_code() -> None:
    def never() -> Place:
        raise AssertionError

    repeats = Repeats()
    repeats.note([replace(FIRST, error="killed by SIGKILL", traceback="")], never)
    for step in range(2 * MOST):
        repeats.note([FIRST], lambda step=step: replace(PLACE, steps=step))  # type: ignore[misc]
    assert len(repeats._known) == MOST
