"""A folder of snapshots: which one to go on from, publishing under the fence, and which ones to drop.

There is no pointer to the latest snapshot that could be stale or torn: a reader looks at all of them, newest first,
and takes the first that proves to be whole. What is damaged is put aside under ``bad-``, never deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from trainer.snapshots import snapshot
from trainer.snapshots.fence import Fence
from trainer.snapshots.ledger import LedgerError, audit
from trainer.snapshots.retention import Retention
from trainer.snapshots.shards import CorruptError
from trainer.snapshots.snapshot import ForeignError, Manifest
from trainer.world.order import Order

Say = Callable[[str], None]


class SnapshotError(Exception):
    """The snapshots cannot be used or written, and training on without them would lose work; says why."""


class Archive:
    """The snapshots of one run, in a folder that earlier runs may have left theirs in.

    Args:
        folder: is made where it does not exist.
        run: the run's id.
        model: the model's signature.
        optimizer: its class.
        order: the data's order.
        keep: which of the run's snapshots stay.
        say: takes lines for a person.
    """

    def __init__(
        self, folder: Path, *, run: str, model: str, optimizer: str, order: Order, keep: Retention, say: Say
    ) -> None:
        self._folder = folder
        self._fence = Fence(folder)
        self._run = run
        self._model = model
        self._optimizer = optimizer
        self._order = order
        self._keep = keep
        self._say = say

    def claim(self) -> int:
        """Claim the next generation, and clear away what killed writers of earlier ones left half-written.

        Raises:
            SnapshotError: the folder cannot be written.
        """
        try:
            generation = self._fence.claim(self._run, above=self._highest())
        except OSError as error:
            raise SnapshotError(f"no snapshots can be written to {self._folder}: {error}") from error
        for scratch in self._folder.glob(f"{snapshot.SCRATCH}*"):
            shutil.rmtree(scratch) if scratch.is_dir() else scratch.unlink()
        return generation

    def offers(self, *, resume: bool) -> Iterator[Manifest]:
        """What fits, newest first: this run's snapshots, then (with ``resume``) those of earlier runs.

        Raises:
            SnapshotError: this run's own snapshot is of another model or other data.
        """
        for manifest in self._candidates(resume=resume):
            try:
                self.check(manifest)
            except (CorruptError, ForeignError) as error:
                self.pass_over(manifest, error)
            else:
                yield manifest

    def pass_over(self, manifest: Manifest, error: Exception) -> None:
        """Tell why a snapshot is not used; a damaged one is put aside.

        Raises:
            SnapshotError: it is this run's own, and whole, but of something else.
        """
        path = self.path(manifest)
        if isinstance(error, ForeignError) and manifest.run == self._run:
            raise SnapshotError(f"{path} is of this run, but {error}; start a new run") from error
        self._put_aside(path, error)

    def takes(self, copy: Manifest) -> bool:
        """Whether a copy in memory is of this run as it is now."""
        try:
            self.check(copy)
        except (CorruptError, ForeignError) as error:
            self.pass_over_copy(copy, error)
            return False
        return copy.run == self._run

    def pass_over_copy(self, copy: Manifest, error: Exception) -> None:
        """Tell why a copy in memory is not used."""
        self._say(f"passing over the copy in memory of step {copy.step}: {error}")

    def path(self, manifest: Manifest) -> Path:
        """Where a snapshot is."""
        return self._folder / manifest.name

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

    def thin_out(self) -> None:
        """Drop what need not be kept, once there is a newer one with all of its shards."""
        for old in self._keep.dropped(self._own()):
            self._drop(old)

    def _highest(self) -> int:
        """The newest generation that left a snapshot: somebody may have copied those without their claims."""
        told = (path.name.rpartition("-g")[2] for path in self._folder.glob("step-*"))
        return max((int(generation) for generation in told if generation.isdecimal()), default=0)

    def _candidates(self, *, resume: bool) -> list[Manifest]:
        everything = list(self._readable())
        own = [one for one in everything if one.run == self._run]
        others = [one for one in everything if one.run != self._run] if resume else []
        own.sort(key=_history, reverse=True)
        others.sort(key=_history, reverse=True)
        return own + others

    def _readable(self) -> Iterator[Manifest]:
        for path in self._folder.glob("step-*"):
            try:
                yield snapshot.read_manifest(path)
            except ForeignError as error:
                self._say(f"passing over {path}: {error}")
            except (CorruptError, OSError) as error:
                self._put_aside(path, error)

    def _own(self) -> list[Manifest]:
        return sorted((one for one in self._readable() if one.run == self._run), key=_history)

    def check(self, manifest: Manifest) -> None:
        """Hold what a manifest says against this run and against itself.

        Raises:
            ForeignError: it is of another model, optimizer or data.
            CorruptError: its ledger does not hold.
        """
        if manifest.model != self._model:
            raise ForeignError("its model has other parameters")
        if manifest.optimizer != self._optimizer:
            raise ForeignError(f"its optimizer is {manifest.optimizer}, not {self._optimizer}")
        if manifest.data != self._order.fingerprint:
            raise ForeignError(_other_data(manifest, self._order))
        audit_cursor(manifest, self._order)

    def _put_aside(self, path: Path, error: Exception) -> None:
        if not isinstance(error, CorruptError):
            self._say(f"passing over {path}: {error}")
            return
        bad = path.with_name(f"{snapshot.ASIDE}{path.name}")
        with suppress(OSError):  # a folder that can only be read: passed over again next time
            path.rename(bad)
        self._say(f"passing over {path}: {error}; it is kept as {bad.name}")

    def _drop(self, manifest: Manifest) -> None:
        scratch = self._folder / f"{snapshot.SCRATCH}{manifest.name}-dropped"
        with suppress(OSError):  # dropped with the next one
            (self._folder / manifest.name).rename(scratch)
            shutil.rmtree(scratch)


def _other_data(manifest: Manifest, order: Order) -> str:
    if (manifest.samples, manifest.batch, manifest.seed) == (order.samples, order.batch, order.seed):
        return "its data set is another one of the same length"
    return "its data have another length, batch size or seed"


def audit_cursor(manifest: Manifest, order: Order) -> None:
    """Hold a manifest's ledger against its cursor.

    Raises:
        CorruptError: the ledger does not count each sample up to the cursor once.
    """
    try:
        reached = audit(manifest.ledger, order)
    except LedgerError as error:
        raise CorruptError(f"its ledger does not hold: {error}") from error
    if reached != manifest.cursor:
        raise CorruptError(f"its ledger ends at {reached}, its cursor is {manifest.cursor}")


def _history(manifest: Manifest) -> tuple[int, int]:
    """What came later in a run: a newer generation first, whatever step a stale writer had reached."""
    return manifest.generation, manifest.step
