"""Lists the folders of snapshots and parses their names: published, quarantined, or unfinished. Needs no torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final

from kittrain.rank.snapshots.folder.snapshot import QUARANTINE, SCRATCH

NOTHING: Final = (0, 0)  # an age before that of any snapshot
_FOLDER: Final = re.compile(r"(bad-(?:\d+-)?|\.tmp-)?step-(\d+)-g(\d+)(-dropped)?")


@dataclass(frozen=True, kw_only=True)
class SnapshotFolder:
    """A folder, and what its name says.

    Attributes:
        published: whether it has a snapshot's final name.
        quarantined: whether a run renamed it as damaged.
    """

    path: Path
    step: int
    generation: int
    published: bool
    quarantined: bool

    @property
    def age(self) -> tuple[int, int]:
        """Sort key, later is greater: first by generation, as a stale writer may have reached a later step."""
        return self.generation, self.step


def list_folders(folder: Path) -> list[SnapshotFolder]:
    """All of them, the newest first; none if the folder does not exist.

    Raises:
        OSError: the folder cannot be listed at the moment. (``glob`` would hide that.)
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [_parse(folder / name, match) for name in names if (match := _FOLDER.fullmatch(name))]
    return sorted(found, key=lambda one: one.age, reverse=True)


def is_empty(folder: Path) -> bool:
    """Whether a folder has no snapshot, not even a damaged one: those are for a person to look at.

    Raises:
        OSError: it cannot be listed.
    """
    return not any(one.published or one.quarantined for one in list_folders(folder))


def scratch_entries(folder: Path) -> list[Path]:
    """All unfinished files and folders there now, of any writer; none if the folder does not exist.

    Raises:
        OSError: the folder cannot be listed at the moment.
    """
    try:
        return [entry for entry in folder.iterdir() if entry.name.startswith(SCRATCH)]
    except FileNotFoundError:
        return []


def quarantine_path(path: Path) -> Path:
    """A free name to quarantine a snapshot under; numbered if the plain one is taken."""
    numbered = (path.with_name(f"{QUARANTINE}{number}-{path.name}") for number in count(2))
    first = path.with_name(f"{QUARANTINE}{path.name}")
    return next(one for one in chain([first], numbered) if not os.path.lexists(one))


def _parse(path: Path, match: re.Match[str]) -> SnapshotFolder:
    prefix, step, generation, _ = match.groups()
    return SnapshotFolder(
        path=path,
        step=int(step),
        generation=int(generation),
        published=prefix is None,
        quarantined=bool(prefix and prefix.startswith(QUARANTINE)),
    )
