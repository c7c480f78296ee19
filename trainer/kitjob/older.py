"""What older versions accepted in a job, written as this one accepts it. Pure.

A time was of seconds, and memory of bytes, if it had no unit. A job that was submitted so continues, and can be
restarted; what a user writes now must have a unit. Why: decision 35.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from kitjob.fields import BYTES, DURATION, QUANTITY, RESOURCES_IN_BYTES, TIMEOUT, Meta
from kitjob.record import Record, camel, hints, is_record

_FRACTIONS: Final = {"n": -9, "u": -6, "m": -3}  # powers of ten


def upgraded(kind: type[Record], given: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is written, with the units that an older version let out."""
    known = {camel(name): hint for name, hint in hints(kind).items()}
    return {key: _part(known[key], value) if key in known else value for key, value in given.items()}


def with_unit(hint: Any, text: str) -> str:
    """A text of a field of this type, with the unit that an older version let out."""
    patterns = _patterns(hint)
    if patterns & {DURATION, TIMEOUT}:
        return f"{text}s" if re.fullmatch("[0-9]{1,9}", text) and text != "0" else text
    return _bytes(text) if BYTES in patterns else text


def _part(hint: Any, value: Any) -> Any:
    if isinstance(value, str):
        return with_unit(hint, value)
    if isinstance(value, list) and (item := next(filter(is_record, get_args(hint)), None)):
        return [_part(item, one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if is_record(hint):
        return upgraded(hint, value)
    return {name: _amount(name, one) for name, one in value.items()} if QUANTITY in _patterns(hint) else value


def _amount(resource: str, value: Any) -> Any:
    return _bytes(value) if isinstance(value, str) and re.search(RESOURCES_IN_BYTES, resource) else value


def _bytes(value: str) -> str:
    """An amount without a unit, or in thousandths of a byte, as a number with its power of ten."""
    if re.search(BYTES, value) or not re.search(QUANTITY, value):
        return value
    return f"{value[:-1]}e{_FRACTIONS[value[-1]]}" if value[-1] in _FRACTIONS else f"{value}e0"


def _patterns(hint: Any) -> set[str]:
    """The patterns of a type, of one that may be None, or of a mapping's values."""
    parts = get_args(hint)
    return {one.pattern for one in parts if isinstance(one, Meta)}.union(*map(_patterns, parts))
