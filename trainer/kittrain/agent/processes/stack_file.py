"""Where a rank's threads are, without a word in its log: it prints their stacks to a file when its agent asks.

Asking changes nothing for the rank: the signal is none that scripts use, faulthandler answers it without the
interpreter's lock, and interrupted system calls go on. A process that does not handle it, such as another program that
the rank has become, is not asked. Standard library only.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

SIGNAL: Final = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR1
_CAUGHT: Final = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)


def path_of(heartbeat: Path) -> Path:
    """The file of the rank that has this heartbeat file."""
    return heartbeat.with_name(f"{heartbeat.name}.stacks")


def register(environ: Mapping[str, str] = os.environ) -> None:
    """Print this process's stacks to its file on :data:`SIGNAL`; without an agent there is none."""
    if name := environ.get("KIT_HEARTBEAT_FILE"):
        with suppress(OSError):  # the rank works without it
            # Kept open, by faulthandler; each write is at the end, wherever the agent has cut the file.
            faulthandler.register(SIGNAL, path_of(Path(name)).open("a"), all_threads=True)


def ask(pid: int, file: Path) -> bool:
    """Ask a rank for its stacks; returns whether it answers such a question."""
    try:
        if not catches(pid, SIGNAL):
            return False
        os.truncate(file, 0)
        os.kill(pid, SIGNAL)
    except OSError:  # it has ended
        return False
    return True


def catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal.

    Raises:
        OSError: it has ended.
    """
    caught = _CAUGHT.search(Path(f"/proc/{pid}/status").read_text())
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1)


def answer(file: Path) -> list[str]:
    """What it has printed so far, in lines."""
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
