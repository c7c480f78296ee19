"""Checkpoints written by a framework: finding the newest that all ranks have completed."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from kittrain.system.files import replace, sync_folder

MARKER: Final = "kit.json"  # written into a checkpoint once every rank has written its part


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What the kit notes in a complete checkpoint.

    Attributes:
        step: optimizer steps before it.
        ranks: that wrote it.
        accumulation: batches of each rank in a step.
    """

    step: int
    ranks: int
    accumulation: int = 1

    @classmethod
    def read(cls, checkpoint: Path) -> Self | None:
        """The marker of a checkpoint; None: it is not complete, or was not written under the kit."""
        try:
            found = json.loads((checkpoint / MARKER).read_bytes())
            return cls(**{name: int(found[name]) for name in ("step", "ranks", "accumulation")})
        except (OSError, ValueError, KeyError, TypeError):
            return None


def newest(folder: Path, name: str) -> Path | None:
    """The complete checkpoint with the largest step, as its files' folder; None if there is none.

    Args:
        folder: that holds the checkpoints.
        name: of a checkpoint's folder, up to its step.
    """
    complete_ones = _complete(folder, name)
    return complete_ones[-1][1] if complete_ones else None


def sync(checkpoint: Path) -> None:
    """Fsync all files of a checkpoint: a framework leaves that to the system."""
    for folder, _, files in os.walk(checkpoint):
        for name in files:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))


def complete(checkpoint: Path, marker: Marker) -> None:
    """Mark a checkpoint as complete."""
    replace(checkpoint / MARKER, json.dumps(asdict(marker)).encode())


def kept_accumulation(marker: Marker | None, ranks: int) -> int | None:
    """Batches per rank and step that keep the size of a step on this number of ranks; None: impossible."""
    if marker is None or marker.ranks * marker.accumulation % ranks:
        return None
    return marker.ranks * marker.accumulation // ranks


def position_note(marker: Marker | None, ranks: int) -> str:
    """The changes for a run that continues with another number of ranks; empty if there are none."""
    if marker is None or marker.ranks == ranks:
        return ""
    if accumulation := kept_accumulation(marker, ranks):
        return (
            f", with {accumulation} batches per rank and step instead of {marker.accumulation}: steps keep their size"
        )
    return (
        f", instead of {marker.ranks}; note: {marker.ranks * marker.accumulation} batches per step cannot be shared "
        "equally, so the size of a step changes, and samples of this epoch may repeat or be left out"
    )


def prune(folder: Path, name: str, *, keep: int) -> None:
    """Remove all but the ``keep`` newest complete checkpoints, and what is older than these and not complete."""
    kept = _complete(folder, name)[-keep:]
    for one in folder.iterdir():
        step = one.name.removeprefix(name)
        if kept and step != one.name and step.isdecimal() and int(step) < kept[0][0]:
            shutil.rmtree(one, ignore_errors=True)


def _complete(folder: Path, name: str) -> list[tuple[int, Path]]:
    """Complete checkpoints with their steps, in order."""
    found = re.compile(rf"{re.escape(name)}\d+")
    entries = list(folder.iterdir()) if folder.is_dir() else []
    return sorted((marker.step, one) for one in entries if found.fullmatch(one.name) and (marker := Marker.read(one)))
