"""Generations: each start of a run's ranks claims the next number, and whoever holds a lower one may not publish.

A claim is a file created exclusively, which even network file systems do atomically. Two runs that share a folder
share the numbers too: the one that started last owns the folder.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from kittrain.system import files


class Fenced(Exception):
    """A newer generation has taken over: this process must not write any more."""


class Fence:
    """The claims beside a folder of snapshots."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ".fence"

    def claim(self, run_id: str, *, above: int = 0) -> int:
        """Claim the next generation; from now on all lower ones are fenced off.

        Args:
            run_id: who claims it; kept for a person to read, with a mark that no other claim has.
            above: generations up to this one are in use, whatever the claims say.

        Raises:
            OSError: the folder cannot be written.
        """
        files.make_folder(self._folder)
        while True:
            generation = max(self.highest(), above) + 1
            with suppress(FileExistsError):  # somebody was faster: take the number after theirs
                mark = f"{run_id} {uuid.uuid4().hex}"
                files.write(self._path(generation), mark.encode(), exclusive=True)
                files.sync_folder(self._folder)
                return generation

    def mark(self, generation: int) -> str | None:
        """What a claim holds, if its file can be seen from here: elsewhere the same path may be another folder.

        Raises:
            OSError: whether it is there cannot be told at the moment.
        """
        try:
            return self._path(generation).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def owner(self, generation: int) -> str | None:
        """The id of the run that has claimed a generation; None where that is not known. Raises as ``mark`` does."""
        mark = self.mark(generation)
        return mark.rpartition(" ")[0] or None if mark else None

    def highest(self) -> int:
        """The newest generation; 0 before the first claim."""
        return max((int(entry.name) for entry in self._folder.iterdir() if entry.name.isdecimal()), default=0)

    def check(self, generation: int) -> None:
        """Make sure that a generation is still the newest.

        Raises:
            Fenced: it is not.
            OSError: the folder cannot be read.
        """
        newest = self.highest()
        if newest > generation:
            raise Fenced(f"generation {newest} has taken over: generation {generation} must not publish any more")

    def _path(self, generation: int) -> Path:
        return self._folder / f"{generation:04}"
