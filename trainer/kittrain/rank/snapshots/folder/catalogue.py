"""Inspects a folder of snapshots in any condition, for ``kitctl snapshots``. Needs no torch.

It changes nothing except in ``delete``; a run that resumes uses ``candidates``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kitjob import timeline
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.listing import SnapshotFolder, list_folders
from kittrain.rank.snapshots.folder.snapshot import MODEL, IncompatibleError, Manifest
from kittrain.system import files

Condition = Literal[
    "whole",  # the manifest is valid and the files exist; their bytes were not checked
    "verified",  # every byte was checked
    "damaged",
    "foreign",  # of another version of the format
    "unreadable",  # the file system cannot read it at the moment
    "unfinished",  # being written now, or left by a writer that was killed
]
GOOD: Final = frozenset({"whole", "verified"})


class CatalogueError(Exception):
    """There is no such snapshot, or it must not be deleted; says why."""


@dataclass(frozen=True, kw_only=True)
class SnapshotInfo:
    """One snapshot folder.

    Attributes:
        reason: what is wrong with it; empty if nothing is.
        size: of all its files, in bytes.
        manifest: None if it is not valid.
    """

    path: Path
    step: int
    generation: int
    condition: Condition
    reason: str = ""
    size: int = 0
    manifest: Manifest | None = None

    @property
    def good(self) -> bool:
        """Whether a run may resume from it, as far as it was checked."""
        return self.condition in GOOD


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter or a buffer of the model; ``size`` is in bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int


def inspect_all(folder: Path, *, verify: bool = False) -> list[SnapshotInfo]:
    """All snapshots, the newest first: by generation and step, as a run would try them.

    Args:
        folder: may be absent.
        verify: read and check every byte.

    Raises:
        OSError: the folder cannot be listed at the moment.
    """
    found = [_info(one, verify=verify) for one in list_folders(folder)]
    return [one for one in found if one.condition != "unreadable" or not _is_gone(one.path)]


def pick(found: Sequence[SnapshotInfo], wanted: str | None) -> SnapshotInfo:
    """The snapshot of a step or a name; without either the newest good one.

    If several have the step, a good one is preferred.

    Raises:
        CatalogueError: there is none.
    """
    candidates = [one for one in found if (one.good if wanted is None else _matches(one, wanted))]
    if candidates:
        return max(candidates, key=lambda one: one.good)  # the first of them
    problem = "no usable snapshot" if wanted is None else f"no snapshot {wanted!r}"
    steps = ", ".join(str(one.step) for one in found if one.good) or "none"
    raise CatalogueError(f"{problem}; steps with a usable one: {steps}")


def parameters(info: SnapshotInfo, manifest: Manifest) -> list[Parameter]:
    """The model's parameters and buffers, from the shards' tails; their data are not read.

    Raises:
        CorruptError: a shard is missing, or its size or its tail differs.
        OSError: one cannot be read at the moment.
    """
    opened = snapshot.open_shards(info.path, manifest)
    pieces = [piece for shard in opened for piece in shard.pieces if piece.tensor.startswith(MODEL)]
    sizes = Counter[str]()
    for piece in pieces:  # boxes that do not overlap
        sizes[piece.tensor] += piece.stop - piece.start
    return [
        Parameter(name=name.removeprefix(MODEL), shape=piece.shape, dtype=piece.dtype, size=sizes[name])
        for name, piece in {piece.tensor: piece for piece in pieces}.items()
    ]


def prunable(found: Sequence[SnapshotInfo], keep: int, *, damaged: bool = False) -> list[SnapshotInfo]:
    """Snapshots that may be deleted: those older than the ``keep`` newest verified ones, and on request damaged ones.

    The newest verified one whose state is finite is kept, too, as a run keeps it. Unfinished ones may be being written,
    and unreadable ones may be good: both are kept.

    Raises:
        CatalogueError: ``keep`` is below 1.
    """
    if keep < 1:
        raise CatalogueError(f"keep {keep}: at least one good snapshot has to be kept")
    good = [one for one in found if one.good]
    verified = [one for one in good if one.condition == "verified"]
    finite = [one for one in verified if one.manifest and not one.manifest.not_finite][:1]
    older = good[good.index(verified[keep - 1]) + 1 :] if len(verified) >= keep else []
    bad = [one for one in found if damaged and one.condition == "damaged"]
    return [one for one in older if one not in finite] + bad


def delete(found: Sequence[SnapshotInfo], names: Collection[str], *, keep: int, damaged: bool) -> list[SnapshotInfo]:
    """Delete snapshots by name, all of which have to be ``prunable``.

    Raises:
        CatalogueError: one of them is not; none was deleted.
        OSError: one cannot be deleted.
    """
    allowed = {one.path.name: one for one in prunable(found, keep, damaged=damaged)}
    if denied := sorted(set(names) - allowed.keys()):
        raise CatalogueError(
            f"{', '.join(denied)} cannot be deleted: the {keep} newest good snapshots are kept, and the last finite one"
        )
    for name in names:
        path = allowed[name].path
        scratch = path.with_name(f"{snapshot.SCRATCH}{name}-dropped")
        path.rename(scratch)  # first, so that no run sees a partial snapshot
        files.sync_folder(path.parent)  # nor after a power cut
        shutil.rmtree(scratch)
    return [allowed[name] for name in names]


def delete_histories(folder: Path, left: Sequence[SnapshotInfo]) -> list[str]:
    """Delete the histories of runs that have no snapshot left, but for the newest one; returns the runs' ids.

    Raises:
        OSError: one cannot be deleted.
    """
    top = folder / timeline.FOLDER
    runs = sorted(top.iterdir(), key=lambda one: one.stat().st_mtime) if top.is_dir() else []
    if not all(one.manifest for one in left):
        return []  # whose they are is unknown
    kept = {one.manifest.run for one in left if one.manifest} | {one.name for one in runs[-1:]}
    gone = [one for one in runs if one.name not in kept]
    for one in gone:
        shutil.rmtree(one)
    return [one.name for one in gone]


def _info(folder: SnapshotFolder, *, verify: bool) -> SnapshotInfo:
    condition, reason, manifest = _inspect(folder, verify=verify)
    return SnapshotInfo(
        path=folder.path,
        step=folder.step,
        generation=folder.generation,
        condition=condition,
        reason=reason,
        size=_size(folder.path),
        manifest=manifest,
    )


def _is_gone(path: Path) -> bool:
    """Whether a run has deleted or renamed it since it was listed, or all that links in it lead to."""
    try:
        return any(one.is_symlink() and not one.exists() for one in path.iterdir())
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _size(path: Path) -> int:
    """Bytes of all files that can be read; a run may be deleting the folder."""
    size = 0
    with suppress(OSError):
        for file in path.iterdir():
            size += file.stat().st_size
    return size


def _read_complete(path: Path) -> Manifest:
    """A snapshot's manifest, if its shards exist with their sizes and tails. Raises as ``snapshot.verify`` does."""
    manifest = snapshot.read_manifest(path)
    for _ in snapshot.open_shards(path, manifest):
        pass
    return manifest


def _inspect(folder: SnapshotFolder, *, verify: bool) -> tuple[Condition, str, Manifest | None]:
    if not (folder.published or folder.quarantined):
        return "unfinished", "being written, or left by a writer that was killed", None
    try:
        manifest = snapshot.verify(folder.path) if verify else _read_complete(folder.path)
    except CorruptError as error:
        return "damaged", str(error), None
    except IncompatibleError as error:
        return "foreign", str(error), None
    except OSError as error:
        return "unreadable", str(error), None
    if folder.quarantined:
        return "damaged", "quarantined by a run that could not resume from it", manifest
    return ("verified" if verify else "whole"), "", manifest


def _matches(info: SnapshotInfo, wanted: str) -> bool:
    return info.path.name == wanted or (wanted.isdecimal() and info.step == int(wanted))
