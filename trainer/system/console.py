"""The one place that writes to the agent's stdout: whole lines only, whichever thread they come from."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

_lock = threading.Lock()


def write(lines: bytes) -> None:
    """Write whole lines; a reader that went away must not stop the training."""
    with _lock, contextlib.suppress(BrokenPipeError):
        while lines:
            lines = lines[os.write(sys.stdout.fileno(), lines) :]


def say(node_index: int, text: str) -> None:
    """Say something in the agent's own name, each line as ``[agent 2]: text``."""
    write("".join(f"[agent {node_index}]: {line}\n" for line in text.splitlines()).encode())
