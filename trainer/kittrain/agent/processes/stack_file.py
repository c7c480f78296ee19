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
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

SIGNAL: Final = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR1
MAIN: Final = signal.SIGRTMIN + 6 if hasattr(signal, "SIGRTMIN") else SIGNAL  # the main thread alone
MORE: Final = "..."  # what faulthandler prints after 100 threads: the main one, which comes last, is not among them
WAIT: Final = 0.5  # seconds for the main thread's stack, and for those of all forks
MOST_FORKS: Final = 4  # whose answers are read
_QUIET: Final = 0.02  # seconds without a further line: it is complete
_HEADER: Final = "Current thread 0x0 (most recent call first):"
_CAUGHT: Final = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)


def path_of(heartbeat: Path) -> Path:
    """The file of the rank that has this heartbeat file."""
    return heartbeat.with_name(f"{heartbeat.name}.stacks")


def register(environ: Mapping[str, str] = os.environ) -> None:
    """Print this process's stacks to its file on :data:`SIGNAL`; without an agent there is none."""
    if name := environ.get("KIT_HEARTBEAT_FILE"):
        with suppress(OSError):  # the rank works without it
            # Kept open, by faulthandler; each write is at the end, wherever the agent has cut the file.
            file = path_of(Path(name)).open("a")
            faulthandler.register(MAIN, file, all_threads=False)
            faulthandler.register(SIGNAL, file, all_threads=True)


def ask(pid: int, file: Path, number: int = SIGNAL) -> bool:
    """Ask a rank for its stacks; returns whether it answers such a question."""
    try:
        if not catches(pid, number):
            return False
        os.truncate(file, 0)
        os.kill(pid, number)
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


def answer(pid: int, file: Path) -> list[str]:
    """What it has printed so far, in lines; of a rank with too many threads to show its main one, asks for that.

    If that does not answer there are none: another thread would be taken for it.
    """
    lines = _read(file)
    if lines[-1:] != [MORE]:
        return lines
    main = _of_main(pid, file, time.monotonic() + WAIT)
    return [*lines[:-1], _HEADER, *main[1:]] if main else []


def of_forks(pids: Iterable[int], file: Path) -> Iterator[tuple[int, list[str]]]:
    """What the main threads of a rank's forks print, as its loader's workers: they have its handler, and its file.

    Each with its process id.

    A process that was not forked from the rank does not handle the signal, and is not asked.
    """
    deadline = time.monotonic() + WAIT
    answers = ((pid, _of_main(pid, file, deadline)) for pid in pids if time.monotonic() < deadline)
    return islice(filter(itemgetter(1), answers), MOST_FORKS)


def _of_main(pid: int, file: Path, deadline: float) -> list[str]:
    """What the main thread alone prints; empty if it does not in time."""
    lines: list[str] = []
    if ask(pid, file, MAIN):
        while time.monotonic() < deadline and (not lines or lines != _read(file)):
            lines = _read(file)
            time.sleep(_QUIET)
    return lines


def _read(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
