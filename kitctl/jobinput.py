"""What a person asked for, before it is checked: the seam between the command line and ``specfile``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class JobInput(NamedTuple):
    """A job file and the flags that win over it. No dataclass: `submit --help` has no time to make one."""

    file: Path | None = None
    """The job file; ``-`` is standard input."""
    flags: Mapping[str, Any] = MappingProxyType({})
    """A tree with a job file's keys."""
    settings: tuple[str, ...] = ()
    """``a.b=c`` for any field, as written; these win over ``flags``."""


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` wins over ``below``: mappings merge key by key, everything else is replaced as a whole."""
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
