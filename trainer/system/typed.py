"""Values of declared types as JSON, and back: what nodes and ranks tell each other. Standard library only.

Plain values, bytes (base64), enumerations, lists, tuples, mappings, unions, dataclasses, and exceptions as their text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, Final

from trainer.system.decoders import MalformedError, decoder


def dump(value: Any) -> bytes:
    """A value as JSON in one line.

    Raises:
        TypeError: it is of no type that can be read again.
    """
    return json.dumps(encode(value), separators=(",", ":")).encode()


def load(kind: Any, content: bytes) -> Any:
    """The value of a declared type that JSON holds.

    Raises:
        MalformedError: it is not JSON, or of another type.
    """
    return decode(kind, parse(content))


def parse(content: bytes) -> Any:
    """JSON as plain values.

    Raises:
        MalformedError: it is not JSON.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not JSON: {type(error).__name__}") from error


def encode(value: Any) -> Any:
    """A value as what JSON knows.

    Raises:
        TypeError: it is of no type that can be read again.
    """
    for kinds, act in ENCODERS:
        if isinstance(value, kinds):
            return act(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _names(type(value))}
    raise TypeError(f"{type(value).__name__} is not told to other nodes")


def decode(kind: Any, value: Any) -> Any:
    """What JSON gave as a value of a declared type.

    Raises:
        MalformedError: it is of another type.
    """
    return decoder(kind)(value)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _text(value: str) -> str:
    return value if value.isascii() else value.encode(errors="replace").decode()


ENCODERS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (  # the first that fits; an IntEnum is an Enum, too
    (str, _text),
    (Enum, lambda value: encode(value.value)),
    ((int, float, NoneType), lambda value: value),  # and bool
    ((list, tuple), lambda value: [encode(one) for one in value]),
    (Mapping, lambda value: {encode(key): encode(one) for key, one in value.items()}),
    (bytes, lambda value: base64.b64encode(value).decode()),
    (Exception, lambda value: {"error": _text(str(value))}),
)
