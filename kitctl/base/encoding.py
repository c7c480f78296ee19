"""JSON of kitctl's own types, with the records of ``kitjob`` as parts of them."""

from __future__ import annotations

import operator
from functools import cache, reduce
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec

from kitjob import older, typed
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
def struct_of(kind: Any, base: Any = msgspec.Struct, parts: Any = msgspec.Struct, beyond: Any = None) -> Any:
    """The struct with the fields and constraints of a record or a struct, for msgspec; keys are in camelCase.

    Args:
        kind: the record or struct.
        base: of the struct that is made.
        parts: base of those that are made of its parts.
        beyond: a base of the record, whose fields are left out.
    """
    fields = {name: one for name, one in _fields(kind).items() if not beyond or name not in _fields(beyond)}
    return msgspec.defstruct(
        kind.__name__,
        [_field(name, _converted(hint, parts), default) for name, (hint, default) in fields.items()],
        bases=(base,),
        module=kind.__module__,
        namespace={"__doc__": kind.__doc__},
        omit_defaults=base is msgspec.Struct,
        frozen=True,
        kw_only=True,
        rename="camel",
        forbid_unknown_fields=base is msgspec.Struct,
    )


def _fields(kind: Any) -> dict[str, tuple[Any, object]]:
    """The types and defaults of its fields."""
    if is_record(kind):
        return {name: (hint, kind.__fields__[name]) for name, hint in hints(kind).items()}
    return {one.name: (one.type, _default(one)) for one in msgspec.structs.fields(kind)}


def _default(field: msgspec.structs.FieldInfo) -> object:
    made = field.default_factory() if callable(field.default_factory) else field.default
    return MISSING if made is msgspec.NODEFAULT else made


def _field(name: str, hint: Any, default: object) -> Any:
    if default is MISSING:
        return name, hint
    if isinstance(default, Record):
        of: Any = type(default)
        default = struct_of(of)()
    return name, hint, msgspec.field(default_factory=dict) if default == {} and type(default) is dict else default


def _converted(hint: Any, base: Any) -> Any:
    """A type with such structs for its records and structs, and with msgspec's constraints."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_record(hint) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        return struct_of(hint, base, base)
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
        return typed.decode(kind, older.upgraded(kind, value) if isinstance(value, dict) else value)
    raise NotImplementedError
