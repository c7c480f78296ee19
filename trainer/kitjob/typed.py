"""Encodes values of declared types as JSON, and decodes them. Standard library only.

Supports plain values, bytes (base64), paths, enumerations, lists, tuples, mappings, unions, records (names in
camelCase), dataclasses (names as they are), and exceptions (as their text).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from kitjob.decoders import MalformedError, decoder
from kitjob.record import Record, camel

Encoder = Callable[[Any], Any]
JSON: Final = json.JSONEncoder(separators=(",", ":"))


def dump(value: Any) -> bytes:
    """Encode a value as one line of JSON.

    Raises:
        TypeError: its type is not supported.
    """
    return JSON.encode(encode(value)).encode()


def load(kind: Any, content: bytes) -> Any:
    """Decode JSON to a value of type ``kind``.

    Raises:
        MalformedError: it is not JSON, or of another type.
    """
    return decode(kind, parse(content))


def parse(content: bytes) -> Any:
    """Parse JSON to plain values.

    Raises:
        MalformedError: it is not JSON.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not JSON: {type(error).__name__}") from error


def encode(value: Any) -> Any:
    """Convert a value to plain JSON values.

    Raises:
        TypeError: its type is not supported.
    """
    kind: Any = type(value)
    return _encoder(kind)(value)


def decode(kind: Any, value: Any) -> Any:
    """Convert plain JSON values to a value of type ``kind``.

    Raises:
        MalformedError: it is of another type.
    """
    return decoder(kind)(value)


def parts(kind: Any) -> tuple[Any, ...]:
    """The members of a union; else the type alone."""
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def is_mapping(kind: Any) -> bool:
    """Whether a type is one of mappings."""
    return get_origin(kind) in {dict, Mapping}


def encodable(text: str) -> str:
    """The text as it can be encoded; a lone surrogate becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


@cache
def _encoder(kind: Any) -> Encoder:
    for known, act in ENCODERS:
        if issubclass(kind, known):
            return act
    if issubclass(kind, Record):
        keys = {name: camel(name) for name in kind.__fields__}
        return lambda value: {key: encode(getattr(value, name)) for name, key in keys.items()}
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} cannot be encoded as JSON")
    names = [field.name for field in fields(kind)]
    return lambda value: {name: encode(getattr(value, name)) for name in names}


ENCODERS: Final[tuple[tuple[Any, Encoder], ...]] = (  # the first match counts; an IntEnum is an Enum, too
    (str, encodable),
    (Enum, lambda value: encode(value.value)),
    ((int, float, NoneType), lambda value: value),  # and bool
    ((list, tuple), lambda value: [encode(one) for one in value]),
    (Mapping, lambda value: {encode(key): encode(one) for key, one in value.items()}),
    (PurePath, lambda value: encodable(str(value))),
    (bytes, lambda value: base64.b64encode(value).decode()),
    (Exception, lambda value: {"error": encodable(str(value))}),
)
