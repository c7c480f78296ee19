"""Folders that belong to a process as long as it lives, however it ends: a lock tells, which the kernel takes back.

Process ids come again, also after a restart of the machine, and mean nothing in another container; a lock does not.
Standard library only.
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

OWNER: Final = "owner"  # the file that is locked
_held: Final[set[int]] = set()  # descriptors


def claim(folder: Path) -> int:
    """Make a folder, or take one over that nobody owns; gives the descriptor that holds it.

    Nobody else may be given that descriptor, nor the file be opened again: closing any of them ends the claim. To be
    ended by ``release``; forked processes have no part in it.

    Raises:
        OSError: it belongs to a process that lives, or there is no place for it.
    """
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock's, no lock of forked processes, too
        except OSError:
            os.close(descriptor)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), (folder / OWNER).stat()):
                _held.add(descriptor)
                return descriptor
        os.close(descriptor)  # somebody was just clearing it away


def release(descriptor: int) -> None:
    """End a claim."""
    _held.discard(descriptor)
    os.close(descriptor)


def clear(root: Path, prefix: str, *, unused: float, but: Path | None = None) -> None:
    """Remove folders whose owners are gone; other users', and those that were never claimed, stay.

    Args:
        root: where they lie.
        prefix: of their names.
        unused: seconds for which nothing may have changed in one: somebody may be about to claim it.
        but: one to keep.
    """
    for folder in root.glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else has it, or was quicker
            if folder != but and _is_left(folder, unused):
                owner = claim(folder)
                shutil.rmtree(folder, ignore_errors=True)
                release(owner)


def _is_left(folder: Path, unused: float) -> bool:
    """Whether a folder may have been left behind, as far as that is seen without its lock."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    with os.scandir(folder) as entries:
        changed = {entry.name: entry.stat(follow_symlinks=False).st_mtime for entry in entries}
    return OWNER in changed and max(found.st_mtime, *changed.values()) < time.time() - unused


def _close_in_child() -> None:
    """What was forked holds no claim, so it does not pass descriptors of them on either: to ranks, for instance."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
