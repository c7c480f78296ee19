"""Durations, as ``1h30m``. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> int:
    """``"1h30m"`` or ``"90"`` as whole seconds.

    Raises:
        ValueError: not a duration.
    """
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    if not re.fullmatch(r"([0-9]{1,9}[dhms])+", text):
        raise ValueError(f"{text!r} is not a duration like 90, 45s, 10m or 1h30m")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", text))
