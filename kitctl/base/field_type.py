"""The type of a field of the job file: its keys, whether it is text, what is wrong with a value.

All problems of a file are found at once, and worded for its writer.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from kitctl.base.errors import Problem
from kitjob import typed
from kitjob.decoders import MalformedError, decoder
from kitjob.record import MISSING, camel, hints, is_record

_MAX_SHOWN = 80  # characters
_QUOTE = "; quote what looks like a number"
_HINTS = {
    int: "give a whole number",
    str: f"give text{_QUOTE}",
    bool: "give true or false",
}


class FieldType(msgspec.Struct, frozen=True, dict=True):
    """A type, with its annotations and unions resolved."""

    type: Any

    @cached_property
    def fields(self) -> dict[str, FieldType]:
        """The keys of a section; empty for other types."""
        return {camel(name): FieldType(hint) for name, hint in self._hints.items()}

    @property
    def required(self) -> list[str]:
        """The required keys of a section."""
        return [camel(name) for name in self._hints if self.type.__fields__[name] is MISSING]

    @cached_property
    def values(self) -> FieldType | None:
        """The type of the values of a mapping with free keys."""
        return FieldType(get_args(self.type)[1]) if get_origin(self.type) is dict else None

    @cached_property
    def items(self) -> FieldType | None:
        """The type of the items of a list."""
        return FieldType(get_args(self.type)[0]) if get_origin(self.type) is tuple else None

    @cached_property
    def scalar_types(self) -> frozenset[type]:
        """The types that a scalar may have."""
        return frozenset(
            scalar
            for part in _parts(self.type)
            for scalar in (map(type, get_args(part)) if get_origin(part) is Literal else [_bare(part)])
        )

    @property
    def is_text(self) -> bool:
        """Whether a scalar is always text, never a number or a boolean."""
        return str in self.scalar_types and not self.scalar_types & {int, bool}

    @property
    def hint(self) -> str:
        """What to write, for an error message."""
        if self.items:
            return "give a list, as in [a, b]" if self.items.is_text else "give a list"
        if self.fields or self.values:
            return "give a mapping of keys to values"
        return ", or ".join(hint for part in _parts(self.type) if (hint := _hint(part)))

    def child(self, key: str) -> FieldType | None:
        """The type of ``key``; None if there is no such key."""
        return self.fields.get(key) or self.values

    def unknown(self, path: str, key: str, where: str = "") -> Problem:
        """The error for a key that does not exist."""
        from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

        near = get_close_matches(key, self.fields, n=1)
        fix = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(self.fields)}"
        return Problem.of(path, f"unknown key{where}", fix)

    def build(self, value: Any) -> Any:
        """The value of this type that a file gives, whose sections and keys are right."""
        if isinstance(value, Mapping) and self.fields:
            names = {camel(name): name for name in self._hints}
            return self.type(**{names[key]: self.fields[key].build(part) for key, part in value.items()})
        if isinstance(value, list) and self.items:
            return tuple(map(self.items.build, value))
        return value

    def errors(self, value: Any, path: str = "") -> Iterator[Problem]:
        """Everything that is wrong with a value that was read from a file."""
        if isinstance(value, Mapping) and (self.fields or self.values):
            for key, part in value.items():
                yield from self._child_errors(str(key), part, join(path, str(key)))
            for key in self.required:
                if key not in value:
                    yield Problem.of(join(path, key), "is missing", self.fields[key].hint)
        elif isinstance(value, list) and self.items:
            for number, item in enumerate(value):
                yield from self.items.errors(item, f"{path}[{number}]")
        elif not _fits(value, self.type):
            yield self._misfit(value, path)

    def object_errors(self, value: Any, path: str = "") -> Iterator[Problem]:
        """The same of an object that was constructed: its sections have to be objects of their types, too.

        What was left at its default is right: a list of fifty jobs is read in half the time.
        """
        if self.fields and type(value) is not self.type:
            yield Problem.of(path, f"{_shown(value)} is not allowed", f"give a {self.type.__name__}")
        elif self.fields:
            defaults = self.type.__fields__
            for name in self._hints:
                if (given := getattr(value, name)) is not defaults[name]:
                    yield from self.fields[camel(name)].object_errors(given, join(path, camel(name)))
        elif self.items and isinstance(value, list | tuple):
            for number, item in enumerate(value):
                yield from self.items.object_errors(item, f"{path}[{number}]")
        else:
            yield from self.errors(value, path)

    def _child_errors(self, key: str, value: Any, path: str) -> Iterator[Problem]:
        child = self.child(key)
        if child is None:
            yield self.unknown(path, key)
        elif self.values and not _fits(key, get_args(self.type)[0]):
            yield Problem.of(path, "is not a valid name here", FieldType(get_args(self.type)[0]).hint)
        else:
            yield from child.errors(value, path)

    def _misfit(self, value: Any, path: str) -> Problem:
        from kitctl.base import units  # noqa: PLC0415 - only errors need it

        patterns = [meta.pattern for part in _parts(self.type) for meta in _metas(part)]
        told = [found for pattern in patterns if (found := units.advice(value, pattern))[0]]
        what, fix = told[0] if told else (f"{_shown(value)} is not allowed", self._advice(value))
        return Problem.of(path, what, fix)

    def _advice(self, value: Any) -> str:
        """The hint; only a number may be one that was meant to be text."""
        return self.hint if isinstance(value, bool | int | float) else self.hint.replace(_QUOTE, "")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return hints(self.type) if is_record(self.type) else {}


def join(path: str, key: str) -> str:
    """``a`` and ``b`` as ``a.b``."""
    return f"{path}.{key}" if path else key


def _parts(kind: Any) -> Iterator[Any]:
    """The members of a union, nested ones included."""
    if get_origin(kind) in {Union, types.UnionType}:
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _metas(part: Any) -> tuple[Any, ...]:
    return get_args(part)[1:] if get_origin(part) is Annotated else ()


def _hint(part: Any) -> str:
    if get_origin(part) is Literal:
        return f"give one of {', '.join(str(value) or 'nothing' for value in get_args(part))}"
    for meta in _metas(part):
        if meta.examples:
            return f"write it like {' or '.join(meta.examples)}"
        if meta.ge is not None:
            return f"give a whole number of at least {meta.ge}"
    return _HINTS.get(_bare(part), "")


def _fits(value: Any, kind: Any) -> bool:
    try:
        decoder(kind)(typed.encodable(value) if isinstance(value, str) else value)
    except MalformedError:
        return False
    return True


def _shown(value: Any) -> str:
    """A value in brief: it may be large, or contain itself."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
