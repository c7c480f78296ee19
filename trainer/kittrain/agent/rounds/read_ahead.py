"""Reads the newest snapshot ahead on a node that stands by: its restore then finds it in the machine's memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kittrain.outcome.failures import SNAPSHOT


class ReadAhead:
    """Called about once a second; asks the kernel to read each newest snapshot, once, and waits for nothing.

    Args:
        folder: of the snapshots; None if there are none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known = ""

    def __call__(self) -> None:
        """Look whether there is a newer snapshot."""
        with suppress(OSError):  # pruned meanwhile, or a store that fails: the restore would say so
            newest = self._newest()
            if newest and newest.name != self._known:
                self._known = newest.name
                for path in newest.iterdir():
                    _will_be_needed(path)

    def _newest(self) -> Path | None:
        names = [entry.name for entry in self._folder.iterdir()] if self._folder else []
        found = [match for name in names if (match := SNAPSHOT.fullmatch(name))]
        newest = max(found, key=lambda match: (int(match[2]), int(match[1])), default=None)
        return self._folder / newest[0] if self._folder and newest else None


def _will_be_needed(path: Path) -> None:
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
