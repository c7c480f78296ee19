"""Looks into a mirror as ``catalogue`` looks into a folder, for ``kitctl snapshots list s3://...``; changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder.catalogue import Condition, SnapshotInfo
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError
from kittrain.rank.snapshots.mirror.errors import MirrorDamagedError, MirrorError
from kittrain.rank.snapshots.mirror.fetching import bring, manifest_of, name_of
from kittrain.rank.snapshots.mirror.index import Entry
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.writing import read_index


def inspect_all(store: Store, scratch: Path, *, verify: bool = False) -> list[SnapshotInfo]:
    """All snapshots of a mirror, the newest first.

    Args:
        store: its objects.
        scratch: a folder for what is read; ``SnapshotInfo.path`` is there, and exists only after ``bring``.
        verify: read and check every byte; else only the manifests, and the sizes of all other objects.

    Raises:
        MirrorError: there is no mirror, or it cannot be read.
        MirrorUnavailableError: the store does not answer.
    """
    found = read_index(store)
    if found is None:
        raise MirrorError(f"{store.url}: nothing was copied there; fix: give the prefix that snapshots.mirror names")
    return [_info(store, scratch, entry, verify=verify) for entry in found[0].newest]


def fetch_one(store: Store, scratch: Path, name: str) -> None:
    """Bring a snapshot that ``inspect_all`` has found into the scratch folder.

    Raises:
        MirrorDamagedError: it is not what was uploaded.
        CorruptError: the same.
    """
    found = read_index(store)
    for entry in found[0].newest if found else []:
        if entry.name == name and not (scratch / name).exists():
            bring(store, scratch, entry)


def _info(store: Store, scratch: Path, entry: Entry, *, verify: bool) -> SnapshotInfo:
    condition: Condition = "verified" if verify else "whole"
    reason, manifest = "", None
    try:
        name = name_of(entry)
        if verify:
            bring(store, scratch, entry)
            shutil.rmtree(scratch / name)
        manifest = manifest_of(store, entry)
        wrong = [one.path for one in entry.files if not verify and store.size(one.key) != one.size]
        condition, reason = ("damaged", f"{wrong[0]} is missing, or has another size") if wrong else (condition, "")
    except IncompatibleError as error:
        condition, reason = "foreign", str(error)
    except (MirrorDamagedError, CorruptError) as error:
        condition, reason = "damaged", str(error)
    return SnapshotInfo(
        path=scratch / Path(entry.name).name,
        step=entry.step,
        generation=entry.generation,
        condition=condition,
        reason=reason,
        size=entry.size,
        manifest=manifest,
    )
