"""Which snapshots a run may go on from, the newest first, and what is said of those that it may not.

A snapshot is passed over only once its content is proved bad: then it is put aside under ``bad-``, never deleted. What
cannot be read now proves nothing. And no run begins anew in silence while there are snapshots to go on from, whatever
is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kittrain.job_spec import Resume
from kittrain.snapshots import snapshot
from kittrain.snapshots.archive import Say, SnapshotError
from kittrain.snapshots.fence import Fence
from kittrain.snapshots.fitting import Identity, OtherOrderError, check
from kittrain.snapshots.listing import Named, free_aside, listing
from kittrain.snapshots.shards import CorruptError
from kittrain.snapshots.snapshot import ForeignError, Manifest
from kittrain.system.storage import retry_io

Refusal = CorruptError | ForeignError
ASIDE_BEFORE = "an earlier start found it damaged and put it aside"


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A folder, and its manifest or why it has none; ``run`` is None where nobody knows whose it is."""

    named: Named
    run: str | None
    manifest: Manifest | None = None
    error: Refusal | None = None


class Candidates:
    """Rank 0's look at a folder of snapshots.

    Args:
        folder: of the snapshots.
        identity: what the run is.
        resume: whether earlier runs' count, too, and whether their order of the data has to be this run's.
        from_scratch: whether to begin anew where there are snapshots, but none that can be used.
        say: takes lines for a person.
    """

    def __init__(self, folder: Path, *, identity: Identity, resume: Resume, from_scratch: bool, say: Say) -> None:
        self._folder = folder
        self._identity = identity
        self._resume = resume
        self._from_scratch = from_scratch
        self._say = say
        self._refused: dict[str, str] = {}

    def offers(self) -> Iterator[Manifest]:
        """What fits, newest first: this run's snapshots, then (with ``resume``) those of earlier runs.

        Raises:
            SnapshotError: the next one is whole, but of something else.
            StorageUnavailableError: the folder or a manifest cannot be read.
        """
        for one in self._concerned():
            if one.named.aside:
                self._refused[one.named.path.name] = str(one.error or ASIDE_BEFORE)
                continue
            try:
                yield self._checked(one)
            except (CorruptError, ForeignError) as error:
                self._refuse(one.named.path, one.run, error)

    def pass_over(self, manifest: Manifest, error: Refusal) -> None:
        """Tell why a snapshot is not used; a damaged one is put aside.

        Raises:
            SnapshotError: it is whole, but of something else.
        """
        self._refuse(self._folder / manifest.name, manifest.run, error)

    def takes(self, copy: Manifest) -> bool:
        """Whether a copy in memory is of this run as it is now."""
        try:
            check(copy, self._identity)
        except (CorruptError, ForeignError) as error:
            self.pass_over_copy(copy, error)
            return False
        return copy.run == self._identity.run

    def pass_over_copy(self, copy: Manifest, error: Refusal) -> None:
        """Tell why a copy in memory is not used."""
        self._say(f"passing over the copy in memory of step {copy.step}: {error}")

    def begin_anew(self) -> None:
        """Nothing that was offered could be used: begin at the start, if that loses nothing or was asked for.

        Raises:
            SnapshotError: there are snapshots; names each, and what is wrong with it.
        """
        if not self._refused:
            return
        each = "; ".join(f"{name}: {why}" for name, why in self._refused.items())
        if not self._from_scratch:
            raise SnapshotError(
                f"no snapshot in {self._folder} can be gone on from, and training does not begin anew while there are "
                f"some: {each}. Put a good one there, or begin anew on purpose: kitctl submit --from-scratch "
                "(fromScratch: true in the job file, KIT_FROM_SCRATCH=1)"
            )
        self._say(f"beginning anew from scratch, as asked; what is in {self._folder} stays: {each}")

    def _concerned(self) -> list[_Seen]:
        """This run's, and what nobody knows the owner of; then those of earlier runs, if they count."""
        seen = retry_io(self._look, self._folder, self._say)
        own = [one for one in seen if one.run in {self._identity.run, None}]
        return own + ([one for one in seen if one not in own] if self._resume else [])

    def _look(self) -> list[_Seen]:
        return [self._see(one) for one in listing(self._folder) if one.published or one.aside]

    def _see(self, named: Named) -> _Seen:
        try:
            manifest = snapshot.read_manifest(named.path)
        except (CorruptError, ForeignError) as error:
            return _Seen(named=named, run=Fence(self._folder).owner(named.generation), error=error)
        return _Seen(named=named, run=manifest.run, manifest=manifest)

    def _checked(self, one: _Seen) -> Manifest:
        if one.manifest is None:
            raise one.error or CorruptError("it has no manifest")
        try:
            check(one.manifest, self._identity)
        except OtherOrderError:
            if self._resume != "state":
                raise
        return one.manifest

    def _refuse(self, path: Path, run: str | None, error: Refusal) -> None:
        if isinstance(error, ForeignError) and not self._from_scratch:
            raise SnapshotError(self._foreign(path, run, error)) from error
        self._refused[path.name] = str(error)
        kept = f"; {_put_aside(path)}" if isinstance(error, CorruptError) else ""
        self._say(f"passing over {path}: {error}{kept}")

    def _foreign(self, path: Path, run: str | None, error: ForeignError) -> str:
        whose = "this run" if run == self._identity.run else f"run {run or 'unknown'}"
        fix = "give the job what it had, or move the snapshot away"
        if isinstance(error, OtherOrderError):
            fix += "; resume: state (--resume-state) goes on from its weights and optimizer in the new order"
        return f"{path} is of {whose}, but {error}; start a new run, {fix}"


def _put_aside(path: Path) -> str:
    bad = free_aside(path)
    try:
        path.rename(bad)
    except FileNotFoundError:
        return "somebody else has put it aside"
    except OSError as error:  # such as a folder that can only be read: it is passed over again next time
        return f"it stays, as it cannot be renamed ({error})"
    return f"it is kept as {bad.name}"
