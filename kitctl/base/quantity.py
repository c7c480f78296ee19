"""Format durations (``1h30m``), quantities (``16Gi``) and counts (``2 nodes``). Pure."""

from __future__ import annotations

import re

_FACTORS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3}
_FACTORS |= {unit: 1000.0 ** (power + 2) for power, unit in enumerate("MGTPE")}
_FACTORS |= {f"{unit}i": 1024.0 ** (power + 1) for power, unit in enumerate("KMGTPE")}
# Kubernetes' own grammar. 1E is an exa, and 1E1 is ten.
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i)")


def duration(total: float) -> str:
    """Format seconds: ``4s``, ``3m05s``, ``2h04m``, ``3d02h``; ``0s`` if negative, as by a clock that is behind."""
    whole = max(0, int(total))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{secs:02}s" if minutes else f"{secs}s"


def format_bytes(total: float) -> str:
    """Format bytes: ``512 B``, ``1.5 MiB``, ``40 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if total < 1024:  # noqa: PLR2004 - the base of the units
            return f"{significant(total)} {unit}"
        total /= 1024
    return f"{significant(total)} TiB"


def significant(number: float) -> str:
    """A number with three significant digits, and never with an exponent: ``0.125``, ``12.5``, ``1010``."""
    return f"{number:.3g}" if 0.001 <= number < 999.5 or not number else f"{number:.0f}"  # noqa: PLR2004 - else 1e+03


def amount(text: str) -> float:
    """A Kubernetes quantity as a number: ``"500m"`` is 0.5, ``"2Gi"`` is 2 * 1024**3, ``"1e3"`` is 1000.

    Raises:
        ValueError: not a quantity.
    """
    match = _QUANTITY.fullmatch(text) if text.isascii() else None
    if match is None:
        raise ValueError(f"{text!r} is not a quantity like 500m, 4, 512Mi or 10Gi")
    return float(match[1] or match[2]) * _FACTORS[match[3] or ""]


def pluralize(count: int, one: str, more: str = "") -> str:
    """``1 entry``, ``2 entries``: ``more`` is an irregular plural."""
    return f"{count} {one if count == 1 else more or f'{one}s'}"
