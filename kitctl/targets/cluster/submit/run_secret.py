"""The Secret by which a run's nodes authenticate: random, generated when it is created, and never shown."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from kitctl.targets import Change
from kitctl.targets.cluster.connection.resources import Object
from kitjob.names import SECRET_KEY

T = TypeVar("T", Mapping[str, Any], Mapping[str, Any] | None)

SIZE: Final = 32  # bytes
MASK: Final = "***"


def fill(child: Object) -> Object:
    """A job's Secret with a random value; any other child unchanged."""
    if child["kind"] != "Secret":
        return child
    value = base64.b64encode(secrets.token_hex(SIZE).encode()).decode()
    return child | {"data": {SECRET_KEY: value}}


def mask(change: Change) -> Change:
    """A change whose Secret values are masked."""
    return replace(change, before=_masked(change.before), after=_masked(change.after))


def _masked(thing: T) -> T:
    if not thing or thing["kind"] != "Secret" or "data" not in thing:
        return thing
    return {**thing, "data": dict.fromkeys(thing["data"], MASK)}
