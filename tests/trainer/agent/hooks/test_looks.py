"""Looks become rarer as a script goes on."""

from __future__ import annotations

from kittrain.agent.hooks.looks import is_due


def test_powers_of_two_are_due_from_the_first_look_on() -> None:
    assert [number for number in range(1, 70) if is_due(number)] == [1, 2, 4, 8, 16, 32, 64]
    assert [number for number in range(70) if is_due(number, 8)] == [8, 16, 32, 64]
