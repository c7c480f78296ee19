"""The document that tells agents and ranks about their job: ``KIT_SPEC``. Pure.

It holds the settings of the job file that they read (``Sent``), under the job file's own names and types, without those
that have their defaults, and the ``run`` that the target fills. So an older image refuses only a job that asks for
something that it does not know, and names it.

Why: decision 35.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, get_args

from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.job_keys import JobKeys
from kitjob.older import upgraded
from kitjob.record import Record, camel, given_fields, hints, is_record, sent_fields
from kitjob.run import RunFacts
from kitjob.variables import KIT_SPEC

VERSION: Final = 2  # of the format; raised when a field changes its meaning
LIMIT: Final = 96 * 1024  # bytes of a document: a variable of 128 KiB fails execve
FIX: Final = "rebuild the image, or name one of kitctl's version with --image"

T = TypeVar("T", bound=Record)


class DocumentError(Exception):
    """The document is not what this version reads; names the field."""


def selection(job: JobKeys) -> dict[str, Any]:
    """The settings that agents and ranks read and that differ from their defaults, as in a job file."""
    return _selected(job)


def write(job: JobKeys, run: RunFacts) -> str:
    """The document, as JSON."""
    parts = {"version": VERSION, "job": selection(job), "run": written(run)}
    return typed.JSON.encode(parts)


def read(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document's settings and its run, as they are written.

    Raises:
        DocumentError: it is not JSON, has another format, or asks for something that this version does not know.
    """
    try:
        found = typed.load(dict[str, Any], text.encode(errors="replace"))
    except MalformedError as error:
        raise DocumentError(f"{KIT_SPEC}: {error}") from error
    job, run = found.get("job"), found.get("run")
    version = found.get("version")
    if type(version) is not int:
        raise DocumentError(f"{KIT_SPEC}: version: not a whole number: {version!r}")
    kitctl = f"kitctl {(run.get('kitctl') if isinstance(run, dict) else None) or ''}".strip()
    if version != VERSION:
        older = f"the image's kittrain is {'older' if version > VERSION else 'newer'} than {kitctl}"
        raise DocumentError(f"{KIT_SPEC}: version {version}, and this kittrain reads {VERSION}: {older}; {FIX}")
    if not (isinstance(job, dict) and isinstance(run, dict)):
        raise DocumentError(f"{KIT_SPEC}: job and run: not both objects")
    extra = [*_unknown(JobKeys, job, ""), *_unknown(RunFacts, run, "run")]
    if extra:
        names = ", ".join(extra)
        raise DocumentError(f"{KIT_SPEC}: {names}: not known: the image's kittrain is older than {kitctl}; {FIX}")
    return upgraded(JobKeys, job), run


def build(kind: type[T], given: Mapping[str, Any], where: str = "") -> T:
    """A record from what is written of it.

    Args:
        kind: of the record.
        given: its fields; others have their defaults.
        where: how errors name the record.

    Raises:
        DocumentError: names the field that is not what it should be.
    """
    values = {}
    for name, hint in hints(kind).items():
        key = camel(name)
        if key in given:
            values[name] = _value(hint, given[key], f"{where}.{key}" if where else key)
    try:
        return kind(**values)
    except TypeError as error:
        raise DocumentError(f"{KIT_SPEC}: {where or 'job'}: {error}") from error


def written(record: Record) -> dict[str, Any]:
    """A record as it is written: names in camelCase, without the fields that have their defaults."""
    return {camel(name): _plain(value) for name, value in given_fields(record).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return written(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def _selected(record: Record) -> dict[str, Any]:
    sent = sent_fields(type(record))
    found = {camel(name): value for name, value in given_fields(record).items() if name in sent}
    parts = {key: _selected(one) if isinstance(one, Record) else _plain(one) for key, one in found.items()}
    return {key: one for key, one in parts.items() if one != {}}


def _value(hint: Any, value: Any, where: str) -> Any:
    kind = _record_in(hint)
    if kind and isinstance(value, Mapping):
        return build(kind, value, where)
    try:
        return typed.decode(hint, value)
    except MalformedError as error:
        raise DocumentError(f"{KIT_SPEC}: {where}: {error}") from error


def _record_in(hint: Any) -> type[Record] | None:
    """The record of a type, or of one that may be None."""
    found: type[Record] | None = next((one for one in (hint, *get_args(hint)) if is_record(one)), None)
    return found


def _unknown(kind: type[Record], given: Mapping[str, Any], where: str) -> Iterator[str]:
    known = {camel(name): hint for name, hint in hints(kind).items()}
    for key, value in given.items():
        path = f"{where}.{key}" if where else key
        if key not in known:
            yield path
        elif (section := _record_in(known[key])) and isinstance(value, Mapping):
            yield from _unknown(section, value, path)
