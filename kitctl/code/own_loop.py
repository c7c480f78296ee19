"""Whether a script trains and saves without kitctl's library, as far as the texts show that are sent with it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LIBRARY: Final = re.compile(r"\bkittrain\b")
TRAINS: Final = re.compile(r"\.backward\s*\(|\boptimizer\.step\s*\(")


def trains_alone(script: str, others: Iterable[str]) -> bool | None:
    """Whether a script trains by itself.

    Args:
        script: its text.
        others: those of all other Python files that are sent, which it may import.

    Returns:
        True: it has a loop, and no text names the library. None: no text names it, but what it imports may train.
    """
    if any(LIBRARY.search(text) for text in (script, *others)):
        return False
    return True if TRAINS.search(script) else None
