"""JSON of kitctl's own types, with the records of ``kitjob`` as parts of them."""

from __future__ import annotations

import operator
from functools import cache, reduce
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec

from kitjob import typed
from kitjob.document import written
from kitjob.fields import Meta
from kitjob.record import MISSING, Record, hints, is_record

T = TypeVar("T")


def encode(value: object) -> bytes:
    """A value as JSON; records without the fields that have their defaults."""
    return msgspec.json.encode(value, enc_hook=_written)


def decode(content: bytes | str, kind: type[T]) -> T:
    """JSON as a value of a type.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    if is_record(kind):
        found: T = msgspec.convert(msgspec.json.decode(content), kind, dec_hook=_read)
        return found
    return msgspec.json.decode(content, type=kind, dec_hook=_read)


@cache
def struct_of(kind: Any, base: Any = msgspec.Struct) -> Any:
    """The struct with a record's fields and constraints, for msgspec's own schemas; keys are in camelCase."""
    return msgspec.defstruct(
        kind.__name__,
        [_field(name, _converted(hint, base), kind.__fields__[name]) for name, hint in hints(kind).items()],
        bases=(base,),
        module=kind.__module__,
        namespace={"__doc__": kind.__doc__},
        omit_defaults=base is msgspec.Struct,
        frozen=True,
        kw_only=True,
        rename="camel",
        forbid_unknown_fields=base is msgspec.Struct,
    )


def _field(name: str, hint: Any, default: object) -> Any:
    if default is MISSING:
        return name, hint
    if isinstance(default, Record):
        of: Any = type(default)
        default = struct_of(of)()
    return name, hint, msgspec.field(default_factory=dict) if default == {} and type(default) is dict else default


def _converted(hint: Any, base: Any) -> Any:
    """A type with structs for records, and with msgspec's constraints."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_record(hint):
        return struct_of(hint, base)
    if origin is Annotated:
        return Annotated[_converted(arguments[0], base), *map(_constraint, arguments[1:])]
    if not arguments or origin is None or origin.__name__ == "Literal":
        return hint
    inner = [_converted(one, base) for one in arguments]
    return reduce(operator.or_, inner) if origin in {Union, UnionType} else origin[tuple(inner)]


def _constraint(meta: Meta) -> msgspec.Meta:
    given = {name: getattr(meta, name) for name in Meta.__fields__ if getattr(meta, name) not in {"", None, ()}}
    return msgspec.Meta(**given | ({"examples": list(meta.examples)} if meta.examples else {}))


def _written(value: Any) -> Any:
    if isinstance(value, Record):
        return written(value)
    raise NotImplementedError


def _read(kind: Any, value: Any) -> Any:
    if is_record(kind):
        return typed.decode(kind, value)
    raise NotImplementedError
