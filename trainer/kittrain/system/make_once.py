"""Creates a folder once, however many processes need it: one creates it, the others wait. Standard library only."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kittrain.system import files, folder_locks

WAIT_SECONDS: Final = 0.1  # between attempts to lock


def make_once(folder: Path, make: Callable[[Path], None], *, waiting: Callable[[], None] | None = None) -> None:
    """Create a folder unless it exists; it appears complete or not at all.

    A process that dies meanwhile leaves the work to the next one. Works between machines if they share the file system
    and its locks.

    Args:
        folder: the folder; its parents are created.
        make: fills the empty folder that it gets; that one is then renamed to ``folder``.
        waiting: called once, if another process makes it.

    Raises:
        OSError: the folder cannot be written. What ``make`` raises is passed on.
    """
    workshop = folder.with_name(f".making-{folder.name}")
    while not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            owner = folder_locks.lock(workshop)
        except (BlockingIOError, FileNotFoundError):  # another process has it, or has just removed it
            if waiting:
                waiting()
                waiting = None
            time.sleep(WAIT_SECONDS)
            continue
        try:
            _fill(folder, workshop, make)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
            folder_locks.unlock(owner)


def _fill(folder: Path, workshop: Path, make: Callable[[Path], None]) -> None:
    if folder.exists():  # another process has made it just before the lock was taken
        return
    content = workshop / "content"
    shutil.rmtree(content, ignore_errors=True)  # of a process that died
    content.mkdir(mode=0o755)
    make(content)
    files.sync_file_system(content)  # a power cut must not leave a folder that is never made again, and has empty files
    content.rename(folder)
