"""What to write instead of an amount or a time whose unit is missing, or is none. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kitjob.fields import BYTES, DURATION, QUANTITY, TIMEOUT

_TIMES: Final = {"s": "s", "sec": "s", "m": "m", "min": "m", "h": "h", "hour": "h", "hr": "h", "d": "d", "day": "d"}
_NUMBER: Final = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"


def advice(value: Any, pattern: str) -> tuple[str, str]:
    """What is wrong with a value of a field with this pattern, and the fix; both empty: nothing about its unit."""
    written = "" if isinstance(value, bool) else str(value).strip()
    rules = {BYTES: _bytes, QUANTITY: _quantity, DURATION: _time, TIMEOUT: _time}
    return next(rules[pattern](written), ("", "")) if pattern in rules else ("", "")


def _bytes(written: str) -> Iterator[tuple[str, str]]:
    if re.fullmatch(_NUMBER, written):
        yield f"{written} has no unit", f"write {written}Gi or {written}Mi"
    elif found := re.fullmatch(rf"({_NUMBER})[num]", written):
        what = "thousandths of a byte" if written[-1] == "m" else "less than a byte"
        yield f"{written} is {what}", f"write {found[1]}Mi"
    else:
        yield from _quantity(written)


def _quantity(written: str) -> Iterator[tuple[str, str]]:
    if found := re.fullmatch(rf"({_NUMBER}) ?([kmgtpe])(i?)b?", written, re.IGNORECASE):
        number, letter, binary = found[1], found[2].upper(), bool(found[3])
        decimal = "k" if letter == "K" else letter
        fix = f"write {number}{letter}i" + ("" if binary else f", or {number}{decimal} for powers of ten")
        yield f"{written} has a unit that Kubernetes lacks", fix


def _time(written: str) -> Iterator[tuple[str, str]]:
    if re.fullmatch("[0-9]+", written):
        yield f"{written} has no unit", f"write {written}s, {written}m or {written}h"
    elif (found := re.fullmatch(r"([0-9]+) ?([a-z]+?)s?", written, re.IGNORECASE)) and found[2].lower() in _TIMES:
        yield f"{written} has an unknown unit", f"write {found[1]}{_TIMES[found[2].lower()]}"
