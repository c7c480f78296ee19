"""Rank 0's writes to a folder of snapshots: claiming a generation, publishing under the fence, deleting old ones.

There is no pointer to the latest snapshot that could be stale or torn: a reader tries all of them, newest first,
and takes the first that verifies (``candidates``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from kittrain.outcome import marker
from kittrain.rank.snapshots.files import file_part, shards
from kittrain.rank.snapshots.files.file_part import Probe
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.fence import Fence
from kittrain.rank.snapshots.folder.listing import list_folders, scratch_entries
from kittrain.rank.snapshots.folder.restore_order import continues
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest
from kittrain.system import files
from kittrain.system.storage import PERMANENT_ERRNOS, is_full, retry_io

T = TypeVar("T")
Log = Callable[[str], None]
MODEL = "model.pt"


class SnapshotError(Exception):
    """The snapshots cannot be used or written, and training on without them would lose work; says why."""


class NoRoomError(SnapshotError):
    """The same, for want of space: it can be tried again once somebody has freed some."""


@contextmanager
def writing_model(folder: Path) -> Iterator[None]:
    """Raise what keeps the trained model from being written.

    Raises:
        SnapshotError: it says so, with the folder.
    """
    try:
        yield
    except (CorruptError, OSError) as error:
        kind = NoRoomError if is_full(error) else SnapshotError
        raise kind(f"the trained model cannot be written to {folder}: {error}") from error


class Archive:
    """The snapshots of one run, in a folder that may hold those of earlier runs.

    Args:
        folder: created if it does not exist.
        run: the run's id.
        retention: which of the run's snapshots are kept.
        log: receives lines for the log.

    Attributes:
        folder: see above.
    """

    def __init__(self, folder: Path, *, run: str, retention: Retention, log: Log) -> None:
        self.folder = folder
        self._fence = Fence(folder)
        self._run = run
        self._retention = retention
        self._log = log
        self._newest: Manifest | None = None  # that was published here
        self._generation = 0

    def highest(self) -> int:
        """The newest generation that has claimed this folder, or left a snapshot in it.

        Raises:
            SnapshotError: the folder cannot be written.
            StorageUnavailableError: the storage does not respond.
        """
        return retry_io(
            lambda: self._permanent(lambda: max(self._fence.newest(), self._highest())), self.folder, self._log
        )

    def claim(self, *, above: int = 0) -> int:
        """Claim the next generation, and delete unfinished files of earlier writers.

        Args:
            above: generations up to this one are in use elsewhere.

        Raises:
            SnapshotError: the folder cannot be written.
            StorageUnavailableError: the storage does not respond.
        """
        claim = partial(self._permanent, partial(self._claim, above))
        self._generation, stale = retry_io(claim, self.folder, self._log)
        for scratch in stale:
            snapshot.discard(scratch)
        return self._generation

    def path(self, manifest: Manifest) -> Path:
        """The folder of a snapshot."""
        return self.folder / manifest.name

    def publish(self, manifest: Manifest, scratch: Path, numbers: Sequence[int] | None = None) -> None:
        """Publish the shards that the ranks have written to a scratch folder, in place of a snapshot of the same step.

        Args:
            manifest: of the snapshot.
            scratch: the folder.
            numbers: of the shards that are written there; None: all.

        Raises:
            Fenced: a newer generation has taken over.
            OSError: it could not be published; all earlier ones are still there.
            CorruptError: the shards are not what the ranks wrote; all earlier snapshots are still there.
        """
        snapshot.write_manifest(scratch, manifest)
        for number in range(len(manifest.shards)) if numbers is None else numbers:
            ShardFile(scratch / shards.name(number), manifest.shards[number])  # checks size and tail
        self._fence.check(manifest.generation)
        snapshot.publish(scratch, self.path(manifest))
        self._newest = manifest

    def apply_retention(self, newest: Manifest | None = None, but: str = "") -> None:
        """Delete expired snapshots. Call it once a newer one is published.

        Only ancestors of the newest snapshot are ever deleted: not those of other runs, not those of a branch that
        this run abandoned, and not those that cannot be read.

        Args:
            newest: the snapshot that they are older than; None: the one that was last published here.
            but: name of one that stays in any case.
        """
        with suppress(OSError):  # the next call deletes them
            for old in self._retention.expired(self._ancestors(newest or self._newest)):
                if old.name != but:
                    self._delete(old)

    def drop(self, manifest: Manifest) -> None:
        """Delete a snapshot of this run of which nothing can be made any more."""
        with suppress(OSError):
            if manifest.run == self._run:
                self._delete(manifest)

    def begin_model(self, scratch: str, size: int) -> None:
        """Create the file that the ranks write the model to.

        Args:
            scratch: its name until it is complete.
            size: bytes.

        Raises:
            Fenced: a newer generation has taken over.
            OSError: it cannot be created.
        """
        self._fence.check(self._generation)
        with (self.folder / scratch).open("wb") as file:
            file.truncate(size)

    def complete_model(self, scratch: str, parts: Iterable[tuple[int, files.Buffer]], probes: Iterable[Probe]) -> bool:
        """Add what is left to what the ranks have written, and give the file its name.

        Args:
            scratch: its name until now.
            parts: each with its offset.
            probes: of all ranks.

        Returns:
            False if the folder has lost a part of what the ranks wrote: there is no model file then.

        Raises:
            Fenced: a newer generation has taken over.
            OSError: the file cannot be written.
        """
        path = self.folder / scratch
        if not all(file_part.is_there(path, probe) for probe in probes):
            return False
        files.write_at(path, parts)
        self._fence.check(self._generation)
        path.replace(self.folder / MODEL)
        files.sync_folder(self.folder)
        return True

    def finish(self, model: Iterable[files.Buffer] | None, step: int, *, written: bool = False) -> None:
        """Write the model file, and then the marker that the run has finished.

        Args:
            model: the file's contents in parts; None for no model file.
            step: of the last snapshot.
            written: whether the ranks have written the model file already.

        Raises:
            Fenced: a newer generation has taken over.
            SnapshotError: one of them cannot be written.
        """
        with writing_model(self.folder):
            self._fence.check(self._generation)
            if model is not None:
                files.replace_parts(self.folder / MODEL, model)
            name = MODEL if model is not None or written else ""
            marker.mark(self.folder, self._run, {"step": step, "model": name})

    def _claim(self, above: int) -> tuple[int, list[Path]]:
        """A new generation, and the scratch files that existed before: their writers are fenced off now."""
        snapshot.restore_replaced(self.folder)
        before = scratch_entries(self.folder)
        return self._fence.claim(self._run, above=max(above, self._highest())), before

    def _permanent(self, act: Callable[[], T]) -> T:
        """What a function returns; an error that stays is a ``SnapshotError``."""
        try:
            return act()
        except OSError as error:
            if error.errno not in PERMANENT_ERRNOS:
                raise
            raise SnapshotError(f"no snapshots can be written to {self.folder}: {error}") from error

    def _highest(self) -> int:
        """The newest generation that left a snapshot: snapshots may have been copied without their claims."""
        return max((one.generation for one in list_folders(self.folder)), default=0)

    def _ancestors(self, newest: Manifest | None) -> list[Manifest]:
        """The snapshots of this run that the newest one continues, and itself, in order."""
        found = []
        for one in reversed(list_folders(self.folder)):
            with suppress(CorruptError, IncompatibleError, OSError):  # none of these is ever deleted
                found += [snapshot.read_manifest(one.path)] if one.published else []
        return [one for one in found if newest and _same_lineage(one, newest) and continues(newest, one)]

    def _delete(self, manifest: Manifest) -> None:
        scratch = self.folder / f"{snapshot.SCRATCH}{manifest.name}-dropped"
        self.path(manifest).rename(scratch)
        files.sync_folder(self.folder)  # otherwise a power cut could leave a partial snapshot under its final name
        shutil.rmtree(scratch)


def _same_lineage(one: Manifest, newest: Manifest) -> bool:
    """Whether both are of one run and one order of the data; snapshots in an earlier order are kept."""
    return (one.run, one.data) == (newest.run, newest.data)
