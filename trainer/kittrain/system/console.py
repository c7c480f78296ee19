"""Writes whole lines to the agent's stdout, from any thread. All of the agent's output goes through here."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from kittrain.system.texts import encodable

_lock = threading.Lock()
_copy: Callable[[bytes], None] | None = None


def set_copy(sink: Callable[[bytes], None] | None) -> None:
    """Also pass all lines from now on to ``sink``, which must not block; None stops that."""
    global _copy  # noqa: PLW0603  one per process, as stdout
    _copy = sink


def write(lines: bytes) -> None:
    """Write whole lines. A closed stdout is ignored: it must not stop the training."""
    if _copy:
        _copy(lines)
    with _lock, contextlib.suppress(BrokenPipeError):
        while lines:
            lines = lines[os.write(sys.stdout.fileno(), lines) :]


def log(node_index: int, text: str) -> None:
    """Log a message of the agent, each line as ``[agent 2]: text``."""
    write("".join(f"[agent {node_index}]: {line}\n" for line in encodable(text).splitlines()).encode())
