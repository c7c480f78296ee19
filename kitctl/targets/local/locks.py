"""Locks on files: a process is alive while it holds its file's lock, which the kernel releases when it dies."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock. Tries a shared lock, so that concurrent checks do not see each other."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def acquire_lock(path: Path, timeout: float = 1.0) -> Iterator[IO[bytes] | None]:
    """Hold a lock until the block (or the process) ends; None if another process still has it after ``timeout``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    yield None
                    return
                time.sleep(0.01)  # a check holds its shared lock for microseconds
            else:
                yield file
                return
