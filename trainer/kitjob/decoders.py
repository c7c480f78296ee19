"""Decoders from plain JSON values to declared types. Standard library only.

The input never names a type, so it cannot create objects of types that were not declared.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from kitjob.record import MISSING, Record, camel, hints, is_record

Decoder = Callable[[Any], Any]
INT_LIMIT: Final = 1 << 63  # integers are in [-INT_LIMIT, INT_LIMIT)
SHOWN: Final = 40  # characters of a malformed text that the error shows
PLAIN: Final = (str, int, float, NoneType)


class MalformedError(ValueError):
    """The input is not of the declared type; the message shows the input."""


@cache
def decoder(kind: Any) -> Decoder:
    """The decoder for a type: a function from a JSON value to that type, which raises MalformedError.

    Raises:
        TypeError: the type is not supported.
    """
    if kind in LEAVES:
        return LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in GENERIC:
        return GENERIC[origin](*arguments)
    if is_record(kind):
        return _record(kind)
    if is_dataclass(kind):
        return _dataclass(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return lambda value: kind(_text(_exactly(value, {"error"})["error"]))
    raise TypeError(f"{kind} cannot be decoded from JSON")


def _record(kind: type[Record]) -> Decoder:
    """Of a record, by names in camelCase; what a newer version added is ignored."""
    decoders = {camel(name): (name, decoder(hint)) for name, hint in hints(kind).items()}
    needed = {camel(name) for name, default in kind.__fields__.items() if default is MISSING}

    def record(value: Any) -> Record:
        if type(value) is not dict or not needed <= value.keys():
            raise _wrong(kind.__name__, value)
        known = ((*decoders[key], one) for key, one in value.items() if key in decoders)
        return kind(**{name: decode(one) for name, decode, one in known})

    return record


def _dataclass(kind: Any) -> Decoder:
    declared = get_type_hints(kind, include_extras=True)
    decoders = {name: decoder(declared[name]) for name in (one.name for one in fields(kind))}
    needed = {
        one.name
        for one in fields(kind)
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    }

    def record(value: Any) -> Any:
        if type(value) is not dict or not needed <= value.keys() <= decoders.keys():
            raise _wrong(kind.__name__, value)
        return kind(**{name: decoders[name](one) for name, one in value.items()})

    return record


def _member(kind: type[Enum]) -> Decoder:
    known = {(type(one.value), one.value): one for one in kind}

    def member(value: Any) -> Any:
        if not isinstance(value, int | str) or (type(value), value) not in known:
            raise _wrong(kind.__name__, value)
        return known[type(value), value]

    return member


def _literal(*choices: Any) -> Decoder:
    def choice(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in choices):
            raise _wrong(f"one of {choices}", value)
        return value

    return choice


def _union(*kinds: Any) -> Decoder:
    decoders = [decoder(kind) for kind in kinds]

    def first(value: Any) -> Any:
        for one in decoders:
            try:
                return one(value)
            except MalformedError:
                continue
        raise _wrong(" | ".join(map(_name, kinds)), value)

    return first


def _name(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _name(get_args(kind)[0])
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")


def _list(item: Any) -> Decoder:
    one = decoder(item)
    return lambda value: [one(entry) for entry in _sequence(value)]


def _tuple(*items: Any) -> Decoder:
    if len(items) == 2 and items[1] is Ellipsis:  # noqa: PLR2004  tuple[X, ...]
        one = decoder(items[0])
        return lambda value: tuple(one(entry) for entry in _sequence(value))
    decoders = [decoder(item) for item in items]

    def fixed(value: Any) -> Any:
        if len(_sequence(value)) != len(decoders):
            raise _wrong(f"{len(decoders)} entries", value)
        return tuple(one(entry) for one, entry in zip(decoders, value, strict=True))

    return fixed


def _mapping(key: Any, item: Any) -> Decoder:
    one = decoder(item)
    named = _index if key is int else decoder(key)

    def mapping(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong("an object", value)
        return {named(name): one(entry) for name, entry in value.items()}

    return mapping


def _checked(kind: Any, *checks: Callable[[Any], bool]) -> Decoder:
    plain = decoder(kind)
    examples = [example for check in checks for example in getattr(check, "examples", ())]
    expected = f"like {' or '.join(examples)}" if examples else "within its bounds"

    def checked(value: Any) -> Any:
        found = plain(value)
        if not all(check(found) for check in checks):
            raise _wrong(expected, value)
        return found

    return checked


def _index(name: str) -> int:
    """An integer key: JSON object keys are strings."""
    if not (name.isascii() and name.isdigit() and len(name) < len(str(INT_LIMIT))):
        raise _wrong("a number", name)
    return int(name)


def _exactly(value: Any, names: set[str]) -> Any:
    if type(value) is not dict or value.keys() != names:
        raise _wrong(f"an object of {names}", value)
    return value


def _sequence(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _wrong("a list", value)
    return value


def _plain(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise _wrong(kind.__name__, value)
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not -INT_LIMIT <= value < INT_LIMIT:
        raise _wrong("a whole number", value)
    return value


def _number(value: Any) -> float:
    return value if type(value) is float else float(_whole(value))


def _text(value: Any) -> str:
    if type(value) is not str or not (value.isascii() or _encodable(value)):
        raise _wrong("text", value)
    return value


def _encodable(text: str) -> bool:
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def _path(value: Any) -> Path:
    if not (text := _text(value)):
        raise _wrong("a path", value)
    return Path(text)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError as error:
        raise MalformedError("not base64") from error


def _wrong(expected: str, value: Any) -> MalformedError:
    shown = (
        repr(value[:SHOWN] if isinstance(value, str) else value) if isinstance(value, PLAIN) else type(value).__name__
    )
    return MalformedError(f"not {expected}: {shown}")


LEAVES: Final[dict[Any, Decoder]] = {
    Any: lambda value: value,
    None: lambda value: _plain(NoneType, value),
    NoneType: lambda value: _plain(NoneType, value),
    bool: lambda value: _plain(bool, value),
    int: _whole,
    float: _number,
    str: _text,
    bytes: _bytes,
    Path: _path,
}
GENERIC: Final[dict[Any, Callable[..., Decoder]]] = {
    Annotated: _checked,
    Literal: _literal,
    Union: _union,
    UnionType: _union,
    list: _list,
    Sequence: _list,
    tuple: _tuple,
    dict: _mapping,
    Mapping: _mapping,
}
