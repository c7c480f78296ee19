"""Brings the newest snapshot of a mirror into a folder that has none, verified, and the runs' history with it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.listing import list_folders
from kittrain.rank.snapshots.folder.restore_order import continues
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, SCRATCH, IncompatibleError, Manifest
from kittrain.rank.snapshots.mirror import index as indices
from kittrain.rank.snapshots.mirror.errors import MirrorDamagedError, MirrorError
from kittrain.rank.snapshots.mirror.index import Copied, Entry, Index
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.writing import read_index
from kittrain.system import files


def fetch(
    store: Store,
    folder: Path,
    *,
    run: str,
    resume: bool,
    above: tuple[int, ...] = (0, 0),
    log: Callable[[str], None],
) -> Entry | None:
    """Bring the newest whole snapshot into the folder; None if the mirror has none of a later age than ``above``.

    Raises:
        MirrorError: the mirror cannot be used.
        MirrorDamagedError: it has snapshots, and none is whole.
        MirrorUnavailableError: the store does not answer.
        OSError: the folder cannot be written.
    """
    found = read_index(store)
    if found is None:
        return None
    index = found[0]
    indices.check_run(index, run, resume=resume, url=store.url)
    damaged = []
    for entry in (one for one in index.newest if one.age > above):
        try:
            bring(store, folder, entry)
        except (MirrorDamagedError, CorruptError, IncompatibleError) as error:
            damaged.append(f"{entry.name}: {error}")
            log(f"warning: {entry.name} of {store.url} is not usable: {error}")
            continue
        for one in index.history:
            with suppress(MirrorDamagedError):  # training goes on without it
                _bring_file(store, folder, one)
        return entry
    if damaged:
        raise MirrorDamagedError(f"no snapshot in {store.url} is usable: {'; '.join(damaged)}")
    return None


def check_folder(store: Store, index: Index, folder: Path, *, run: str) -> None:
    """Check that a run that takes over the mirror of another goes on from there: its folder is empty, or a later part.

    Raises:
        MirrorError: the folder has another history; the ranks would go on from that one.
        MirrorDamagedError: the mirror's newest snapshot cannot be read.
        MirrorUnavailableError: the store does not answer.
        OSError: the folder cannot be read.
    """
    if index.owner.run == run or not index.snapshots:
        return
    there = [one for one in list_folders(folder) if one.published]
    newest = index.newest[0]
    with suppress(CorruptError, IncompatibleError):
        if not there or continues(snapshot.read_manifest(there[0].path), manifest_of(store, newest)):
            return
    raise MirrorError(
        f"snapshots.mirror: {folder} has snapshots that do not continue {newest.name} of {store.url}, and would be "
        "used instead; fix: use another --name or --claim, whose folder is empty, or another prefix"
    )


def newer_than(folder: Path, index: Index, *, run: str) -> Entry | None:
    """The newest snapshot of the mirror if this run's folder has only older ones; None if it has newer ones, or none.

    A claim that was restored from an old copy would continue an earlier part of the run, without a word.

    Raises:
        OSError: the folder cannot be read.
    """
    there = [one for one in list_folders(folder) if one.published]
    ahead = index.owner.run == run and index.snapshots and there and index.newest[0].age > there[0].age
    return index.newest[0] if ahead else None


def manifest_of(store: Store, entry: Entry) -> Manifest:
    """The manifest of a snapshot in the mirror.

    Raises:
        MirrorDamagedError: it is not there, or is not the one that was uploaded.
    """
    with TemporaryDirectory(prefix="kit-") as scratch:
        folder = Path(scratch) / name_of(entry)
        folder.mkdir()
        for one in entry.files:
            if PurePosixPath(one.path).name == MANIFEST:
                store.download(one.key, folder / MANIFEST, size=one.size, digest=one.sha256)
        return snapshot.read_manifest(folder)


def name_of(entry: Entry) -> str:
    """The name of a snapshot's folder; what the store has is not trusted to be one."""
    if entry.name != snapshot.name(entry.step, entry.generation):
        raise MirrorDamagedError(f"{entry.name!r} is no name of a snapshot")
    return entry.name


def bring(store: Store, folder: Path, entry: Entry) -> None:
    """Download one snapshot, verify every byte, and give it its name."""
    scratch = folder / f"{SCRATCH}{uuid.uuid4().hex[:8]}-{name_of(entry)}"  # another rank 0 may do the same
    files.make_folder(folder)
    scratch.mkdir()
    try:
        for one in entry.files:
            name = PurePosixPath(one.path).name
            store.download(one.key, scratch / name, size=one.size, digest=one.sha256)
        if snapshot.verify(scratch).digest != entry.digest:
            raise MirrorDamagedError("its manifest is not the one that was uploaded")
        files.sync_folder(scratch)
        snapshot.publish(scratch, folder / entry.name)
    finally:
        snapshot.discard(scratch)


def _bring_file(store: Store, folder: Path, one: Copied) -> None:
    parts = PurePosixPath(one.path).parts
    if os.pardir in parts or PurePosixPath(one.path).is_absolute():
        raise MirrorDamagedError(f"{one.path!r} is no path in the folder")
    path = folder.joinpath(*parts)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        store.download(one.key, path, size=one.size, digest=one.sha256)
