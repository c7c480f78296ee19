"""The job that a command line requests, before validation: the interface between ``cli`` and ``specfile``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class JobRequest(NamedTuple):
    """A job file, and the flags that override it. Not a dataclass: defining one slows down `submit --help`."""

    file: Path | None = None
    """The job file; ``-`` is standard input."""
    flags: Mapping[str, Any] = MappingProxyType({})
    """A nested mapping with a job file's keys."""
    overrides: tuple[str, ...] = ()
    """``a.b=c`` for any field, as written; these override ``flags``."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Those of the user's profile, with a job file's keys; the job file overrides them."""


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` overrides ``below``: mappings merge key by key, anything else is replaced as a whole."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            merged[key] = merge(below[key], above[key])
    return merged


def nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """``nested(["a", "b"], 1)`` is ``{"a": {"b": 1}}``."""
    for key in reversed(path):
        value = {key: value}
    return dict(value)
