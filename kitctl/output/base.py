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


def part_of(kind: Any, base: Any = Part, *, beyond: Any = None) -> Any:
    """What is known of a job, as a part of an object; of a record that extends another, what it adds to that."""
    return struct_of(kind, base, Part, beyond)
