"""A folder of snapshots, as rank 0 writes to it: claiming a generation, publishing under the fence, dropping old ones.

There is no pointer to the latest snapshot that could be stale or torn: a reader looks at all of them, newest first,
and takes the first that proves to be whole (``candidates``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from kittrain.outcome import marker
from kittrain.snapshots import snapshot
from kittrain.snapshots.branch import continues
from kittrain.snapshots.fence import Fence
from kittrain.snapshots.listing import leftovers, listing
from kittrain.snapshots.retention import Retention
from kittrain.snapshots.shards import CorruptError
from kittrain.snapshots.snapshot import ForeignError, Manifest
from kittrain.system import files
from kittrain.system.storage import PERMANENT_ERRNOS, retry_io

Say = Callable[[str], None]
MODEL = "model.pt"


class SnapshotError(Exception):
    """The snapshots cannot be used or written, and training on without them would lose work; says why."""


class Archive:
    """The snapshots of one run, in a folder that earlier runs may have left theirs in.

    Args:
        folder: is made where it does not exist.
        run: the run's id.
        keep: which of the run's snapshots stay.
        say: takes lines for a person.

    Attributes:
        folder: see above.
    """

    def __init__(self, folder: Path, *, run: str, keep: Retention, say: Say) -> None:
        self.folder = folder
        self._fence = Fence(folder)
        self._run = run
        self._keep = keep
        self._say = say
        self._newest: Manifest | None = None  # that was published here
        self._generation = 0

    def claim(self) -> int:
        """Claim the next generation, and clear away what writers of earlier ones have left half-written.

        Raises:
            SnapshotError: the folder cannot be written.
            StorageUnavailableError: it does not answer.
        """
        self._generation, fenced_off = retry_io(self._claim, self.folder, self._say)
        for scratch in fenced_off:
            snapshot.discard(scratch)
        return self._generation

    def path(self, manifest: Manifest) -> Path:
        """Where a snapshot is."""
        return self.folder / manifest.name

    def publish(self, manifest: Manifest, scratch: Path) -> None:
        """Publish the shards that the ranks have written to a folder.

        Raises:
            Fenced: a newer generation has taken over.
            OSError: it could not be published; all earlier ones are still there.
            CorruptError: what is there is not what the ranks wrote; likewise.
        """
        snapshot.seal(scratch, manifest)
        for _ in snapshot.open_shards(scratch, manifest):
            pass  # it is there, as it was written
        self._fence.check(manifest.generation)
        snapshot.publish(scratch, self.path(manifest))
        self._newest = manifest

    def thin_out(self) -> None:
        """Drop what need not be kept, once there is a newer one with all of its shards.

        Only what the newest one goes on from is ever dropped: neither what another run has left, nor what this run
        once went another way from, nor what cannot be read.
        """
        with suppress(OSError):  # dropped with the next one
            for old in self._keep.dropped(self._history()):
                self._drop(old)

    def finish(self, model: Iterable[files.Buffer] | None, step: int) -> None:
        """Leave the model's file, and then the mark that the run has finished.

        Args:
            model: the file's contents, which are asked for one after the other; None for no such file.
            step: of the last snapshot.

        Raises:
            Fenced: a newer generation has taken over.
            SnapshotError: one of them cannot be written.
        """
        try:
            self._fence.check(self._generation)
            if model is not None:
                files.replace_parts(self.folder / MODEL, model)
            marker.mark(self.folder, self._run, {"step": step, "model": MODEL if model is not None else ""})
        except (CorruptError, OSError) as error:
            raise SnapshotError(f"the trained model cannot be written to {self.folder}: {error}") from error

    def _claim(self) -> tuple[int, list[Path]]:
        """A generation, and what was half-written before: whoever writes that is fenced off from now on."""
        try:
            before = leftovers(self.folder)
            return self._fence.claim(self._run, above=self._highest()), before
        except OSError as error:
            if error.errno not in PERMANENT_ERRNOS:
                raise
            raise SnapshotError(f"no snapshots can be written to {self.folder}: {error}") from error

    def _highest(self) -> int:
        """The newest generation that left a snapshot: somebody may have copied those without their claims."""
        return max((one.generation for one in listing(self.folder)), default=0)

    def _history(self) -> list[Manifest]:
        """What the newest snapshot of this run goes on from, and itself, in order."""
        found = []
        for one in reversed(listing(self.folder)):
            with suppress(CorruptError, ForeignError, OSError):  # none of these is ever dropped
                found += [snapshot.read_manifest(one.path)] if one.published else []
        newest = self._newest
        return [one for one in found if newest and _same_line(one, newest) and continues(newest, one)]

    def _drop(self, manifest: Manifest) -> None:
        scratch = self.folder / f"{snapshot.SCRATCH}{manifest.name}-dropped"
        self.path(manifest).rename(scratch)
        files.sync_folder(self.folder)  # else a power cut could leave half of it under its name
        shutil.rmtree(scratch)


def _same_line(one: Manifest, newest: Manifest) -> bool:
    """Whether they are of one run in one order of the data: what another order went on from stays as it is."""
    return (one.run, one.data) == (newest.run, newest.data)
