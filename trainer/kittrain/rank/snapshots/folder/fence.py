"""Fencing by generation: each start of a run's ranks claims the next number, and older generations cannot publish.

A claim is a file created exclusively, which is atomic even on network file systems. Two runs that share a folder
share the numbers too: the one that started last owns the folder.

Why: decision 4.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from kittrain.system import files


class Fenced(Exception):
    """A newer generation has taken over: this process must not write any more."""


class Fence:
    """The claims in a folder of snapshots."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ".fence"

    def claim(self, run_id: str, *, above: int = 0) -> int:
        """Claim the next generation; this fences off all lower ones.

        Args:
            run_id: the claiming run; written to the claim with a unique token.
            above: generations up to this one are in use, even without a claim.

        Raises:
            OSError: the folder cannot be written.
        """
        files.make_folder(self._folder)
        while True:
            generation = max(self.highest(), above) + 1
            with suppress(FileExistsError):  # another process was faster: take the next number
                claim = f"{run_id} {uuid.uuid4().hex}"
                files.write(self._path(generation), claim.encode(), exclusive=True)
                files.sync_folder(self._folder)
                return generation

    def read_claim(self, generation: int) -> str | None:
        """The contents of a claim; None if this folder does not have it, such as on a node with its own folder.

        Raises:
            OSError: the folder cannot be read at the moment.
        """
        try:
            return self._path(generation).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def owner(self, generation: int) -> str | None:
        """The id of the run that claimed a generation; None if unknown. Raises as ``read_claim`` does."""
        claim = self.read_claim(generation)
        return claim.rpartition(" ")[0] or None if claim else None

    def highest(self) -> int:
        """The newest generation; 0 before the first claim."""
        return max((int(entry.name) for entry in self._folder.iterdir() if entry.name.isdecimal()), default=0)

    def newest(self) -> int:
        """As ``highest``, also of a folder that nobody has claimed yet."""
        try:
            return self.highest()
        except FileNotFoundError:
            return 0

    def check(self, generation: int) -> None:
        """Check that a generation is still the newest.

        Raises:
            Fenced: it is not.
            OSError: the folder cannot be read.
        """
        newest = self.highest()
        if newest > generation:
            raise Fenced(f"generation {newest} has taken over: generation {generation} must not publish any more")

    def _path(self, generation: int) -> Path:
        return self._folder / f"{generation:04}"
