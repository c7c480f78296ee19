"""Why a process ended that had not become an agent, or had no time to say so: from the end of its log. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LINES: Final = 20  # of a log's end, in which an error is looked for: Python's own fatal errors have stacks below them
WIDTH: Final = 300  # characters
_ERROR: Final = re.compile(r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)|Fatal Python error)(?:: |$)")


def last_words(lines: Sequence[str]) -> str:
    """The last error in the end of a log, without the times of its lines; without one, the last line."""
    texts = [line.strip() for line in lines[-LINES:] if line.strip()]
    said = next(filter(_ERROR.match, reversed(texts)), texts[-1] if texts else "")
    return said if len(said) <= WIDTH else f"{said[: WIDTH - 1]}…"


def ended_with(code: int, said: str) -> str:
    """How a node's process has ended that has left no message."""
    return f"its agent ended with exit code {code}{': ' if said else ''}{said}"
