"""The bases of all objects that ``-o json`` prints."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from kitctl.base.encoding import struct_of

API_VERSION: Final = "kitctl.dev/v1"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an object: keys are camelCase; times are Unix seconds, durations seconds, sizes bytes."""


class Document(Part, frozen=True, kw_only=True, tag_field="kind"):
    """An object that a command prints; ``kind`` is its type."""

    api_version: Literal["kitctl.dev/v1"] = API_VERSION
    """Version of the format."""


def part_of(kind: Any) -> Any:
    """What agents report, as a part of an object."""
    return struct_of(kind, Part)
