"""When a request is retried, and after how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The server is overloaded, or a backend is away for a moment. Error responses with other codes are final.
RETRIED: Final = frozenset({429, 500, 502, 503, 504})
FIRST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 8.0
LONGEST_RETRY_AFTER_SECONDS: Final = 60.0


def pause(attempt: int, retry_after_seconds: float, jitter: float) -> float:
    """Seconds until the next try: doubled each time, minus up to half as jitter, so that clients spread.

    Args:
        attempt: number of failures before this one.
        retry_after_seconds: the server's ``Retry-After``; the pause is never shorter.
        jitter: a random number from 0 to 1.
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(attempt, 16))
    return max(retry_after_seconds, longest * (1 - jitter / 2))


def retry_after(headers: Mapping[str, str]) -> float:
    """``Retry-After`` in seconds; 0 where it is absent, or a date."""
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_RETRY_AFTER_SECONDS) if text.isascii() and text.isdecimal() else 0.0
