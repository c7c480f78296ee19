"""The checkpoints that a framework writes: which is the newest that all ranks have completed."""

from __future__ import annotations

import json
import os
import re
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
    found = re.compile(rf"{re.escape(name)}\d+")
    entries = list(folder.iterdir()) if folder.is_dir() else []
    marked = [(marker.step, one) for one in entries if found.fullmatch(one.name) and (marker := Marker.read(one))]
    return max(marked, default=(0, None))[1]


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
