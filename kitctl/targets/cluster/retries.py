"""When a request is tried again, and after how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Overloaded, or a server behind the address is just away. A refusal is none of these.
RETRIED: Final = frozenset({429, 500, 502, 503, 504})
FIRST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 8.0
LONGEST_ASKED_SECONDS: Final = 60.0


def pause(attempt: int, asked_seconds: float, chance: float) -> float:
    """Seconds until the next try: twice as long each time, less up to a half by chance, so that clients spread.

    Args:
        attempt: how many failures came before this one.
        asked_seconds: what the server asked for; never less than that.
        chance: from 0 to 1.
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(attempt, 16))
    return max(asked_seconds, longest * (1 - chance / 2))


def asked_to_wait(headers: Mapping[str, str]) -> float:
    """``Retry-After`` in seconds; 0 where it is absent, or a date."""
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_ASKED_SECONDS) if text.isascii() and text.isdecimal() else 0.0
