"""Durations and quantities as a person writes them: ``1h30m``, ``16Gi``. Pure."""

from __future__ import annotations

import re

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_FACTORS = {"": 1.0, "m": 1e-3, "k": 1e3} | {
    unit + suffix: float(base ** (power + 1))
    for power, unit in enumerate("KMGTPE")
    for suffix, base in (("", 1000), ("i", 1024))
}


def seconds(text: str) -> int:
    """``"1h30m"`` or ``"90"`` as whole seconds.

    Raises:
        ValueError: it is neither.
    """
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    if not re.fullmatch(r"([0-9]{1,9}[dhms])+", text):
        raise ValueError(f"{text!r} is not a duration like 90, 45s, 10m or 1h30m")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", text))


def duration(total: float) -> str:
    """Seconds as a person reads them: ``4s``, ``3m05s``, ``2h04m``, ``3d02h``."""
    whole = int(total)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{secs:02}s" if minutes else f"{secs}s"


def size(total: float) -> str:
    """Bytes as a person reads them: ``512 B``, ``1.5 MiB``, ``40 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if total < 1024:  # noqa: PLR2004 - what the units are made of
            return f"{total:.3g} {unit}"
        total /= 1024
    return f"{total:.3g} TiB"


def amount(text: str) -> float:
    """A Kubernetes quantity as a number: ``"500m"`` is 0.5, ``"2Gi"`` is 2 * 1024**3.

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|k|[KMGTPE]i?)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity like 500m, 4, 512Mi or 10Gi")
    return float(match[1]) * _FACTORS[match[2] or ""]
