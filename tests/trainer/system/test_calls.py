"""Calls of two ranks contradict each other only if they cannot be the same collective."""

from __future__ import annotations

from typing import Any

import pytest

from kittrain.system.calls import NO_CALL, SIZE, Call, contradiction


def call(**facts: Any) -> Call:
    usual: dict[str, Any] = {
        "number": 5,
        "group": 7,
        "size": 8,
        "name": "all_reduce",
        "tensor": "[2] float32",
        "root": 0,
    }
    return Call(**usual | facts)


@pytest.mark.parametrize(
    ("other", "contradicts"),
    [
        ({}, False),
        ({"size": 4, "tensor": "[1] float32"}, True),
        ({"tensor": "[1, 2] float32"}, False),  # as many bytes
        ({"name": "broadcast"}, True),
        ({"name": "broadcast", "number": 6}, False),  # it is a call ahead
        ({"name": "broadcast", "group": 8}, False),
        ({"size": 0, "tensor": ""}, False),  # ranks may give as much as they like
        ({"root": 1}, True),
        ({"root": 0}, False),
        ({"name": ""}, False),  # it exchanges with some ranks only
    ],
)
def test_the_same_call_of_two_ranks(other: dict[str, Any], contradicts: bool) -> None:  # noqa: FBT001
    assert call().contradicts(call(**other)) is call(**other).contradicts(call()) is contradicts
    assert not NO_CALL.contradicts(call(**other, number=0) if "number" not in other else call())


def test_the_odd_rank_comes_first() -> None:
    odd, usual = call(size=4, tensor="[1] float32"), call()
    assert contradiction([(0, usual), (1, odd), (2, usual)]) == ((1, odd), (0, usual))
    assert contradiction([(0, odd), (1, usual), (2, usual)]) == ((0, odd), (1, usual))
    assert contradiction([(0, usual), (1, usual), (2, NO_CALL)]) is None


def test_a_heartbeat_keeps_it_with_text_cut_to_its_place() -> None:
    page = bytearray(SIZE + 3)
    call(tensor="é" * 90).write(page, 3)
    found = Call.read(bytes(page), 3)
    assert found == call(tensor="é" * 24)
    Call.count(page, 3, 6)
    assert Call.read(bytes(page), 3).number == 6


def test_a_call_says_from_or_to_which_rank_it_is() -> None:
    mine, theirs = (call(name="broadcast", root=root) for root in (0, 1))
    assert mine.beside(theirs) == "broadcast of [2] float32 from rank 0"
    assert call(name="gather", tensor="", root=3).given == " to rank 3"
    assert call(root=-1).given == " of [2] float32"
