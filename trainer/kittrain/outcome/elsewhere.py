"""Where a rank was as it lost another one: of two that call different collectives, only one fails with that. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kittrain.outcome.failures import Failure
from kittrain.system.texts import LIBRARY

MISMATCH: Final = "collective-mismatch"  # the code of a cause that another rank's line explains
_FRAME: Final = re.compile(r'^ *File "(?P<folder>[^"\n]*/)?(?P<name>[^"/\n]+)", line (?P<line>\d+)', re.MULTILINE)


def where_lost(failures: Iterable[Failure]) -> str:
    """``rank 0 was at train.py:24``: the first rank that lost its peers in a line of the script; empty if none did."""
    lost = sorted((one for one in failures if one.kind == "peer"), key=lambda one: (one.time, one.rank))
    return next((f"rank {one.rank} was at {line}" for one in lost if (line := _line(one.traceback))), "")


def _line(traceback: str) -> str:
    """The innermost line of the script in a traceback."""
    frames = (found for found in _FRAME.finditer(traceback) if not LIBRARY.search(found["folder"] or found["name"]))
    return "".join(f"{found['name']}:{found['line']}" for found in [*frames][-1:])
