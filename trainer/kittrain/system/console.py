"""The one place that writes to the agent's stdout: whole lines only, whichever thread they come from."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

_lock = threading.Lock()
_copy: Callable[[bytes], None] | None = None


def copy_to(take: Callable[[bytes], None] | None) -> None:
    """Have all that is written from now on handed to somebody who does not keep anybody waiting, too."""
    global _copy  # noqa: PLW0603  stdout is one, and so is this
    _copy = take


def write(lines: bytes) -> None:
    """Write whole lines; a reader that went away must not stop the training."""
    if _copy:
        _copy(lines)
    with _lock, contextlib.suppress(BrokenPipeError):
        while lines:
            lines = lines[os.write(sys.stdout.fileno(), lines) :]


def say(node_index: int, text: str) -> None:
    """Say something in the agent's own name, each line as ``[agent 2]: text``."""
    write("".join(f"[agent {node_index}]: {line}\n" for line in text.splitlines()).encode())
