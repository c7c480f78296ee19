"""Folders that a process locks for its lifetime; the kernel releases the lock however the process ends.

A lock is used because process ids are reused and mean nothing in another container. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "owner"  # the file that is locked
_held: Final[set[int]] = set()  # file descriptors


def lock(folder: Path) -> int:
    """Create a folder, or take over an unlocked one; returns the file descriptor that holds the lock.

    End it with ``unlock``. Do not pass the descriptor on or open the lock file again: closing either one ends the
    lock. Forked processes do not hold it.

    Raises:
        OSError: a live process holds the lock, or the folder cannot be created.
    """
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by forks
        except OSError:
            os.close(descriptor)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), (folder / LOCK_FILE).stat()):
                _held.add(descriptor)
                return descriptor
        os.close(descriptor)  # another process was removing the folder


def unlock(descriptor: int) -> None:
    """Release a lock."""
    _held.discard(descriptor)
    os.close(descriptor)


def remove_unused(root: Path, prefix: str, *, unused: float, but: Path | None = None) -> None:
    """Remove this user's folders that were locked once and are not any more.

    Args:
        root: the folder that contains them.
        prefix: what their names start with.
        unused: seconds without a change before a folder is removed: a process may be about to lock it.
        but: a folder to keep.
    """
    for folder in root.glob(f"{prefix}*"):
        with suppress(OSError):  # it is locked, or another process was faster
            if folder != but and _is_abandoned(folder, unused):
                owner = lock(folder)
                shutil.rmtree(folder, ignore_errors=True)
                unlock(owner)


def _is_abandoned(folder: Path, unused: float) -> bool:
    """Whether a folder looks abandoned; the lock is not checked here."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    with os.scandir(folder) as entries:
        changed = {entry.name: entry.stat(follow_symlinks=False).st_mtime for entry in entries}
    return LOCK_FILE in changed and max(found.st_mtime, *changed.values()) < time.time() - unused


def _close_in_child() -> None:
    """Close the descriptors in a forked process: it holds no lock, and must not pass them on to ranks."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
