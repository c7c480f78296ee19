"""Writes a mirror: claims it, adds snapshots, drops expired ones; each by one conditional replacement of its index."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from kitjob import typed
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, Manifest
from kittrain.rank.snapshots.mirror import index as indices
from kittrain.rank.snapshots.mirror.errors import MirrorUnavailableError
from kittrain.rank.snapshots.mirror.index import DATA, INDEX, Copied, Entry, Index, Owner
from kittrain.rank.snapshots.mirror.store import PROBES, Conflict, Store

TRIES: Final = 8  # until a contended index counts as unavailable


def read_index(store: Store) -> tuple[Index, str] | None:
    """The index and its version; None if there is no mirror yet.

    Raises:
        MirrorError: it cannot be used.
        MirrorUnavailableError: the store does not answer.
    """
    found = store.read(INDEX)
    return (indices.parse(found[0], store.url), found[1]) if found else None


class Mirror:
    """A mirror that this process writes.

    Args:
        store: its objects.
        owner: the claim.
        resume: whether the run may take over that of another run.
    """

    def __init__(self, store: Store, owner: Owner, *, resume: bool) -> None:
        self._store = store
        self._owner = owner
        self._resume = resume
        self.index = Index(owner=owner)

    def claim(self) -> None:
        """Take over the mirror, or create it; and delete what earlier writers, and checks that were cut off, left.

        Raises:
            MirrorError: it is that of another run.
            MirrorUnavailableError: the store does not answer.
        """

        def change(index: Index | None) -> Index:
            if index is None:
                return Index(owner=self._owner)
            indices.check_run(index, self._owner.run, resume=self._resume, url=self._store.url)
            return indices.claimed(index, self._owner)

        self._change(change, mine=False)
        self._store.delete(*indices.leftovers(self.index, self._store.list(DATA)), *self._store.list(PROBES))

    def add(
        self,
        folder: Path,
        manifest: Manifest,
        retention: Retention,
        kept: Callable[[], set[str]],
        taken: Callable[[int], None] = lambda _: None,
    ) -> Entry:
        """Upload a published snapshot, verified, and drop those that have expired here and in the folder.

        Args:
            folder: of the snapshots.
            manifest: of the snapshot.
            retention: the run's.
            kept: the names of the snapshots that the folder has then.
            taken: called by any thread, with how many of its bytes the store has taken so far.

        Raises:
            CorruptError: its files are not what the ranks wrote.
            OSError: the folder cannot be read; the snapshot may have expired meanwhile.
            MirrorTakenError: another claim is newer.
            MirrorUnavailableError: the store does not answer.
        """
        path = folder / manifest.name
        snapshot.verify(path)
        files: list[Copied] = []
        for name in [*_shards(path), MANIFEST]:
            files.append(self._upload(path, name, taken, before=sum(one.size for one in files)))
        entry = Entry(
            name=manifest.name,
            run=manifest.run,
            generation=manifest.generation,
            step=manifest.step,
            data=manifest.data,
            created=manifest.created,
            digest=manifest.digest,
            metrics=manifest.metrics,
            not_finite=manifest.not_finite,
            files=tuple(files),
        )
        there = kept()
        gone: list[Entry] = []

        def change(index: Index) -> Index:
            before = indices.lineage(index, entry)
            gone[:] = [one for one in retention.expired(before) if one.name not in there] if there else []
            return indices.added(index, entry, gone)

        self._change(lambda index: change(index or self.index), mine=True)
        self._store.delete(*(one.key for old in gone for one in old.files))
        return entry

    def keep_history(self, files: Iterable[tuple[str, Path]]) -> None:
        """Upload the run's history; each file is replaced by its newest version.

        Raises:
            MirrorTakenError: another claim is newer.
            MirrorUnavailableError: the store does not answer.
        """
        made: list[Copied] = []
        for name, path in files:
            with suppress(OSError):  # its agent is replacing it; the next time has it
                content = path.read_bytes()
                key = f"{DATA}/{self._owner.claim}/{uuid.uuid4().hex[:12]}/{name}"
                self._store.put(key, content)
                digest = hashlib.sha256(content).hexdigest()
                made.append(Copied(path=name, key=key, size=len(content), sha256=digest))
        replaced = {one.path for one in made}
        old = [one for one in self.index.history if one.path in replaced]
        if made:
            kept = tuple(one for one in self.index.history if one.path not in replaced)
            self._change(lambda index: replace(index or self.index, history=(*kept, *made)), mine=True)
            self._store.delete(*(one.key for one in old))

    def _upload(self, folder: Path, name: str, taken: Callable[[int], None], *, before: int) -> Copied:
        path = folder / name
        key = f"{DATA}/{self._owner.claim}/{folder.name}/{name}"
        size = path.stat().st_size
        digest = self._store.upload(key, path, lambda count: taken(before + count))
        return Copied(path=f"{folder.name}/{name}", key=key, size=size, sha256=digest)

    def _change(self, change: Callable[[Index | None], Index], *, mine: bool) -> None:
        """Replace the index; ``mine``: only while this claim holds. A lost answer is recognized by the write's id."""
        for _ in range(TRIES):
            found = read_index(self._store)
            self.index = found[0] if found else self.index
            if found and mine:
                indices.check_owner(found[0], self._owner, self._store.url)
            after = replace(change(found[0] if found else None), write=uuid.uuid4().hex)
            try:
                if found:
                    self._store.replace(INDEX, typed.dump(after), found[1])
                else:
                    self._store.create(INDEX, typed.dump(after))
            except Conflict:
                now = read_index(self._store)
                if not now or now[0].write != after.write:
                    time.sleep(0.1)
                    continue
            self.index = after
            return
        raise MirrorUnavailableError(f"{self._store.url}: others change its index all the time")


def _shards(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir() if one.name != MANIFEST)
