"""When hooks look at a model: seldom, so that no step pays for it."""

from __future__ import annotations


def is_due(number: int, first: int = 1) -> bool:
    """Whether a number of steps, or passes, is a power of two, from the first one on that is looked at."""
    return number >= first and not number & (number - 1)
