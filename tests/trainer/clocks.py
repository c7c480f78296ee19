"""A shifted wall clock for a process and its children, for tests; monotonic clocks are not changed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_SPEC = find_spec("libfaketime")
AVAILABLE = sys.platform == "linux" and _SPEC is not None


def ahead(seconds: int) -> dict[str, str]:
    """The environment of a process whose clock is ahead by this many seconds."""
    assert _SPEC is not None
    assert _SPEC.origin is not None
    (library,) = Path(_SPEC.origin).parent.rglob("libfaketime.so.1")
    return {
        "LD_PRELOAD": library.name,  # without its folder, whose name may contain a space
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKETIME": f"{seconds:+}s",
        "DONT_FAKE_MONOTONIC": "1",
    }
