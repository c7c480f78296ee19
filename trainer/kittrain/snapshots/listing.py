"""The folders among the snapshots, by their names: published, put aside, or half-written. Needs no torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final

from kittrain.snapshots.snapshot import ASIDE, SCRATCH

_FOLDER: Final = re.compile(r"(bad-(?:\d+-)?|\.tmp-)?step-(\d+)-g(\d+)(-dropped)?")


@dataclass(frozen=True, kw_only=True)
class Named:
    """A folder, and what its name says.

    Attributes:
        published: whether it bears a snapshot's own name.
        aside: whether a run has put it aside as damaged.
    """

    path: Path
    step: int
    generation: int
    published: bool
    aside: bool

    @property
    def age(self) -> tuple[int, int]:
        """What came later in a run: a newer generation first, whatever step a stale writer had reached."""
        return self.generation, self.step


def listing(folder: Path) -> list[Named]:
    """All of them, the newest first; none where the folder does not exist.

    Raises:
        OSError: the folder cannot be listed at the moment. (``glob`` would give nothing instead.)
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [_named(folder / name, match) for name in names if (match := _FOLDER.fullmatch(name))]
    return sorted(found, key=lambda one: one.age, reverse=True)


def leftovers(folder: Path) -> list[Path]:
    """All that is half-written there now, whoever writes it; none where the folder does not exist.

    Raises:
        OSError: the folder cannot be listed at the moment.
    """
    try:
        return [entry for entry in folder.iterdir() if entry.name.startswith(SCRATCH)]
    except FileNotFoundError:
        return []


def free_aside(path: Path) -> Path:
    """The name under which a snapshot can be put aside: one of its name may have been before."""
    numbered = (path.with_name(f"{ASIDE}{number}-{path.name}") for number in count(2))
    return next(one for one in chain([path.with_name(f"{ASIDE}{path.name}")], numbered) if not os.path.lexists(one))


def _named(path: Path, match: re.Match[str]) -> Named:
    prefix, step, generation, _ = match.groups()
    return Named(
        path=path,
        step=int(step),
        generation=int(generation),
        published=prefix is None,
        aside=bool(prefix and prefix.startswith(ASIDE)),
    )
