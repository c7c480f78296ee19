"""Keeps the mirror up with the folder, snapshot by snapshot, behind training; and tells how far it is.

The folder alone says what there is to do, so this can be killed and started again at any time. The newest snapshot
goes first: one that is replaced before its turn is not missed.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kitjob import timeline, typed
from kitjob.report import MirrorReport
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.held import of_manifest
from kittrain.rank.snapshots.folder.listing import SnapshotFolder, list_folders
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest
from kittrain.rank.snapshots.mirror.errors import (
    MirrorDamagedError,
    MirrorError,
    MirrorHandedOverError,
    MirrorTakenError,
    MirrorUnavailableError,
    brief,
)
from kittrain.rank.snapshots.mirror.writing import Mirror
from kittrain.system import files

HELD: Final = ".mirroring"  # kittrain.agent.processes.mirror
INTERVAL: Final = 1.0  # seconds between two looks at the folder
RETRY: Final = 10.0  # the same, after a failure
FAILURES: Final = (MirrorError, MirrorDamagedError, MirrorUnavailableError, OSError)


@dataclass(kw_only=True)
class Uploader:
    """Uploads what a run publishes.

    Attributes:
        url: of the mirror.
        node: index of this one.
        open: makes the mirror; tried again while the store does not answer.
        folder: of the snapshots.
        run: the run's id.
        retention: which snapshots are kept.
        status: the file that tells how far it is.
        log: receives a line for each kind of failure.
        gathers: whether the folder is this node's own, which gets the other nodes' shards.
        gives_up: whether a store that refuses it ends it when nothing more is published: a person has to mend that, and
            the folder stays.
        finishing: set once nothing more is published: it ends when all is uploaded.
    """

    url: str
    node: int
    open: Callable[[], Mirror]
    folder: Path
    run: str
    retention: Retention
    status: Path
    log: Callable[[str], None]
    gathers: bool = False
    gives_up: bool = True
    finishing: threading.Event = field(default_factory=threading.Event)
    _mirror: Mirror | None = None
    _skipped: set[str] = field(default_factory=set)  # damaged, or of another version
    _sent: int = 0
    _told: str = ""
    _report: MirrorReport | None = None
    _told_at: float = 0.0  # when it was written last

    def run_until_done(self) -> bool:
        """Upload until told to finish; returns whether all is uploaded, False too if another run has taken over.

        Raises:
            MirrorHandedOverError: another node of this run has.
        """
        while True:
            last = self.finishing.is_set()
            try:
                done = self._catch_up()
            except MirrorTakenError as error:
                self._failed(error)
                if isinstance(error, MirrorHandedOverError):
                    raise
                return False
            except FAILURES as error:
                self._failed(error)
                if last and self.gives_up and isinstance(error, MirrorError):
                    return False
                self.finishing.wait(RETRY if not last else INTERVAL)
                continue
            if last and done:
                return True
            self.finishing.wait(INTERVAL) if not last else time.sleep(INTERVAL / 10)

    def _catch_up(self) -> bool:
        """Upload one snapshot, if there is one; returns whether none is left."""
        if self._mirror is None:
            self._mirror = self._claimed()
        left = self._left(self._mirror)
        self._told = self._told if left else ""  # a warning stays until an upload has succeeded
        self._tell(self._mirror, left)
        if not left:
            return True
        mirror, manifest = self._mirror, left[0]

        def taken(count: int) -> None:
            if time.monotonic() > self._told_at + INTERVAL:
                self._tell(mirror, left, taken=count)

        try:
            with self._held(manifest) as folder:
                entry = mirror.add(folder, manifest, self.retention, self._names, taken)
            self._sent += entry.size
            history = self.folder / timeline.FOLDER / self.run
            paths = sorted(history.iterdir()) if history.is_dir() else []
            mirror.keep_history((f"{timeline.FOLDER}/{self.run}/{one.name}", one) for one in paths)
        except FileNotFoundError:
            if (self.folder / manifest.name).exists():
                raise
            return False  # it has expired meanwhile
        except (CorruptError, IncompatibleError) as error:
            self._skipped.add(manifest.name)
            self.log(f"warning: {manifest.name} is not mirrored: {error}")
        left, self._told = self._left(mirror), ""
        self._tell(mirror, left)
        return not left

    def _claimed(self) -> Mirror:
        """The mirror; what it has is told even if it cannot be written now."""
        mirror = self.open()
        try:
            mirror.claim()
        except FAILURES:
            self._tell(mirror, self._left(mirror))
            raise
        return mirror

    @contextmanager
    def _held(self, manifest: Manifest) -> Iterator[Path]:
        """The folder to upload a snapshot from.

        Where nodes have folders of their own, another process prunes this one's, and might always be faster: its files
        have a second name then.
        """
        if not self.gathers:
            yield self.folder
            return
        held = self.folder / HELD
        shutil.rmtree(held, ignore_errors=True)
        try:
            (held / manifest.name).mkdir(parents=True)
            for name in (snapshot.MANIFEST, *map(shards.name, range(len(manifest.shards)))):
                os.link(self.folder / manifest.name / name, held / manifest.name / name)
            yield held
        finally:
            shutil.rmtree(held, ignore_errors=True)

    def _left(self, mirror: Mirror) -> list[Manifest]:
        """The run's snapshots that the mirror does not have, the newest first."""
        there = {(one.name, one.digest) for one in mirror.index.snapshots}
        found = []
        for one in self._published():
            if one.path.name in self._skipped:
                continue
            try:
                manifest = snapshot.read_manifest(one.path)
            except (CorruptError, IncompatibleError):
                self._skipped.add(one.path.name)
                continue
            except OSError:
                continue  # it has expired, or is found again later
            if self.gathers and not _is_here(one.path, manifest):
                continue  # its other shards are on their way here from other nodes
            if manifest.run == self.run and (manifest.name, manifest.digest) not in there:
                found.append(manifest)
        return found

    def _published(self) -> list[SnapshotFolder]:
        return [one for one in list_folders(self.folder) if one.published]

    def _names(self) -> set[str]:
        return {one.path.name for one in self._published()}

    def _tell(self, mirror: Mirror, left: list[Manifest], *, taken: int = 0) -> None:
        """Tell how far it is; ``taken``: bytes of the first one of those left."""
        mine = [one for one in mirror.index.newest if one.run == self.run]
        newest = mine[0] if mine else None
        report = MirrorReport(
            url=self.url,
            step=newest.step if newest else None,
            time=newest.created if newest else None,
            size=mirror.index.size,
            behind=len(left),
            behind_bytes=max(0, sum(shard.size for one in left for shard in one.shards) - taken),
            behind_steps=max(0, *(one.step - (newest.step if newest else 0) for one in left)) if left else 0,
            behind_since=min((one.created for one in left), default=None),
            sent=self._sent,
            node=self.node,
            warning=self._told,
        )
        self._write(report)

    def _failed(self, error: Exception) -> None:
        text = brief(str(error))
        if text != self._told:
            self._told = text
            self.log(f"warning: {text}")
        last = self._report or MirrorReport(url=self.url, node=self.node)
        self._write(MirrorReport(**{name: getattr(last, name) for name in last.__fields__} | {"warning": text}))

    def _write(self, report: MirrorReport) -> None:
        if report != self._report:
            files.replace(self.status, typed.dump(report) + b"\n")
            self._report = report
        self._told_at = time.monotonic()


def _is_here(path: Path, manifest: Manifest) -> bool:
    with suppress(OSError):
        return len(of_manifest(path, manifest).numbers) == len(manifest.shards)
    return False
