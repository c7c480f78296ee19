"""Frozen records with typed fields, all given by name.

Type checkers read one as a frozen dataclass. The methods are shared, where a dataclass compiles its own: those of all
sections would cost 14 ms at each start of kitctl and of an agent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

MISSING: Final = object()  # the default of a field that must be given
SENT: Final = "sent"  # in an annotation: agents and ranks read the field

T = TypeVar("T", bound="Record")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """The base of all records; a record's fields are its annotations, those of its bases first.

    ``__post_init__`` is called last. On the wire a field's name is in camelCase.

    Raises:
        TypeError: a field is unknown, or missing.
    """

    __fields__: ClassVar[Mapping[str, Any]] = {}  # the default of each field

    def __init_subclass__(cls) -> None:
        annotated = vars(cls).get("__annotations__", {})
        own = {name: vars(cls).get(name, MISSING) for name, hint in annotated.items() if "ClassVar" not in str(hint)}
        cls.__fields__ = {**cls.__fields__, **own}

    def __init__(self, **values: Any) -> None:
        given = {**{name: dict(one) if type(one) is dict else one for name, one in self.__fields__.items()}, **values}
        if unknown := given.keys() - self.__fields__.keys():
            raise TypeError(f"{type(self).__name__} has no {_with_nearest(unknown, self.__fields__)}")
        if missing := sorted(name for name in given if given[name] is MISSING):
            raise TypeError(f"{type(self).__name__}: {', '.join(missing)}: missing")
        vars(self).update(given)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the record, if there is something to check."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: it is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted: it is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in given_fields(self).items())
        return f"{type(self).__name__}({shown})"


def _with_nearest(unknown: Iterable[str], known: Collection[str]) -> str:
    """``gpuspernode; did you mean gpus_per_node?``."""
    from difflib import get_close_matches  # noqa: PLC0415  only for an error

    plain = {name.replace("_", ""): name for name in known}
    near = [plain[one] for name in unknown for one in get_close_matches(name.lower().replace("_", ""), plain, 1)]
    return ", ".join(sorted(unknown)) + (f"; did you mean {' and '.join(sorted(near))}?" if near else "")


def replace(record: T, **changes: Any) -> T:
    """A copy with other values."""
    return type(record)(**{**{name: getattr(record, name) for name in record.__fields__}, **changes})


def given_fields(record: Record) -> dict[str, Any]:
    """The fields that differ from their defaults, by name."""
    found = {name: getattr(record, name) for name in record.__fields__}
    return {name: value for name, value in found.items() if value != record.__fields__[name]}


def camel(name: str) -> str:
    """``every_steps`` as ``everySteps``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def is_record(kind: object) -> bool:
    """Whether a type is one of records."""
    return isinstance(kind, type) and issubclass(kind, Record)


def hints(kind: Any) -> dict[str, Any]:
    """The types of a record's fields by name, with their constraints but without ``SENT``."""
    return _hints(kind)


def sent_fields(kind: Any) -> frozenset[str]:
    """The fields that agents and ranks read; of a section, all if one of its own is read."""
    return _sent_fields(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return {name: _without_mark(hint) for name, hint in _annotations(kind).items()}


@cache
def _sent_fields(kind: Any) -> frozenset[str]:
    return frozenset(name for name, hint in _annotations(kind).items() if SENT in get_args(hint) or _is_sent(hint))


def _is_sent(hint: Any) -> bool:
    return is_record(hint) and bool(sent_fields(hint))


@cache
def _annotations(kind: Any) -> dict[str, Any]:
    found = get_type_hints(kind, include_extras=True)
    return {name: found[name] for name in kind.__fields__}


def _without_mark(hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    bare, *constraints = get_args(hint)
    kept = [one for one in constraints if one is not SENT]
    return Annotated[bare, *kept] if kept else bare


def _values(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__fields__)
