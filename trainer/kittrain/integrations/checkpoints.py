"""Checkpoints written by a framework: finding the newest that all ranks have completed."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from kittrain.system.files import replace, sync_folder

MARKER: Final = "kit.json"  # written into a checkpoint once every rank has written its part


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What kittrain notes in a complete checkpoint.

    Attributes:
        step: optimizer steps before it.
        ranks: that wrote it.
        accumulation: batches of each rank in a step.
        limit: of the training that has ended with this step, as text; empty: it has not.
    """

    step: int
    ranks: int
    accumulation: int = 1
    limit: str = ""

    @classmethod
    def read(cls, checkpoint: Path) -> Self | None:
        """The marker of a checkpoint; None: it is not complete, or was not written under kittrain."""
        try:
            found = json.loads((checkpoint / MARKER).read_bytes())
            counts = {name: int(found[name]) for name in ("step", "ranks", "accumulation")}
            return cls(**counts, limit=str(found.get("limit", "")))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def newest(folder: Path, *names: str) -> Path | None:
    """The complete checkpoint with the largest step, as its files' folder; None if there is none.

    Args:
        folder: that holds the checkpoints.
        names: of a checkpoint's folder, up to its step.
    """
    complete_ones = _complete(folder, *names)
    return complete_ones[-1][1] if complete_ones else None


def sync(checkpoint: Path) -> None:
    """Fsync all files of a checkpoint: a framework leaves that to the system."""
    for folder, _, files in os.walk(checkpoint):
        for name in files:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))


def complete(checkpoint: Path, marker: Marker) -> None:
    """Mark a checkpoint as complete. It survives a power cut from then on: older ones may be removed."""
    replace(checkpoint / MARKER, json.dumps(asdict(marker)).encode())
    sync_folder(checkpoint.parent)  # a framework has created it there


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


def rename(checkpoint: Path, name: str) -> Path:
    """Give a checkpoint's folder another name, in place of one that has it."""
    path = checkpoint.with_name(name)
    remove(path)
    checkpoint.rename(path)
    sync_folder(path.parent)
    return path


def rewrite(path: Path, save: Callable[[Path], None]) -> None:
    """Replace a file of a checkpoint, which may be complete already, atomically and durably.

    Args:
        path: the file.
        save: writes it to the path that it gets.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    draft = path.with_name(f".tmp-{path.name}")
    try:
        save(draft)
        replace(path, draft.read_bytes())
    finally:
        draft.unlink(missing_ok=True)


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint, its marker first: what a kill or a power cut leaves of it is not complete."""
    marker = checkpoint / MARKER
    if marker.exists():
        marker.unlink(missing_ok=True)
        sync_folder(checkpoint)
    shutil.rmtree(checkpoint, ignore_errors=True)


def prune(folder: Path, name: str, *, keep: int, protected: str | None = None) -> None:
    """Remove the oldest complete checkpoints, and all that are not complete and older than the newest that is.

    Args:
        folder: that holds the checkpoints.
        name: of a checkpoint's folder, up to its step.
        keep: how many complete ones stay; the newest always does.
        protected: path of one that stays, too.
    """
    paths = [path for _, path in _complete(folder, name)]
    if not paths:
        return
    staying = {path for path in paths if str(path) == protected} | {paths[-1]}
    spare = [path for path in paths if path not in staying]
    staying |= set(spare[len(spare) - max(keep - len(staying), 0) :])
    for one, step in _folders(folder, name):
        if one not in staying and (one in paths or step < _step(paths[-1])):
            remove(one)


def remove_older(folder: Path, name: str, step: int) -> None:
    """Remove all checkpoints before a step."""
    for one, its_step in _folders(folder, name):
        if its_step < step:
            remove(one)


def _complete(folder: Path, *names: str) -> list[tuple[int, Path]]:
    """Complete checkpoints with their steps, in order."""
    entries = [one for name in names for one, _ in _folders(folder, name)]
    return sorted((marker.step, one) for one in entries if (marker := Marker.read(one)))


def _folders(folder: Path, name: str) -> list[tuple[Path, int]]:
    """Checkpoints, complete or not, with the steps in their names."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    return [(one, _step(one)) for one in entries if re.fullmatch(rf"{re.escape(name)}\d+", one.name)]


def _step(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    return int(checkpoint.name.rpartition("-")[2])
