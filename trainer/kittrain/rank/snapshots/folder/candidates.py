"""Which snapshots a run may resume from, the newest first, and what happens to those that it may not.

A snapshot is skipped only if its content is proved bad: then it is quarantined (renamed to ``bad-...``), never deleted.
A read that fails at the moment proves nothing. And no run starts from scratch by default while there are snapshots,
even if all of them are bad.

Why: decision 21.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kitjob.fields import Resume
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import Log, SnapshotError
from kittrain.rank.snapshots.folder.compatibility import Identity, OrderMismatchError, check
from kittrain.rank.snapshots.folder.fence import Fence
from kittrain.rank.snapshots.folder.listing import SnapshotFolder, list_folders, quarantine_path
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest
from kittrain.system.storage import StorageUnavailableError, retry_io

Unusable = CorruptError | IncompatibleError
ALREADY_QUARANTINED = "damaged; quarantined by an earlier start"


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A folder, and its manifest or why it has none; ``run`` is None if the owner is unknown."""

    folder: SnapshotFolder
    run: str | None
    manifest: Manifest | None = None
    error: Unusable | None = None


class Candidates:
    """Selects snapshots in a folder, on rank 0.

    Args:
        folder: of the snapshots.
        identity: what the run is.
        resume: whether to use earlier runs' snapshots too, and whether their order of the data has to match.
        from_scratch: whether to start from scratch if there are snapshots, but none is usable.
        finite: whether to skip snapshots that are not finite: the job would end again at its next step.
        log: receives lines for the log.
    """

    def __init__(
        self,
        folder: Path,
        *,
        identity: Identity,
        resume: Resume,
        from_scratch: bool,
        finite: bool = False,
        log: Log,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._resume = resume
        self._from_scratch = from_scratch
        self._finite = finite
        self._log = log
        self._rejected: dict[str, str] = {}  # reason by folder name

    def compatible(self) -> Iterator[Manifest]:
        """Snapshots to try, newest first: this run's, then (with ``resume``) those of earlier runs.

        Raises:
            SnapshotError: the next one is valid, but incompatible.
            StorageUnavailableError: the folder or a manifest cannot be read.
        """
        for one in self._relevant():
            if one.folder.quarantined:
                self._rejected[one.folder.path.name] = str(one.error or ALREADY_QUARANTINED)
                continue
            if self._finite and one.manifest and one.manifest.not_finite:
                self._rejected[one.folder.path.name] = f"not finite: {one.manifest.not_finite}"
                self._log(f"skipping {one.folder.path.name}: {one.manifest.not_finite}, and policy.onNonFinite is stop")
                continue
            try:
                yield self._checked(one)
            except (CorruptError, IncompatibleError) as error:
                self._reject(one.folder.path, one.run, error)

    def reject(self, manifest: Manifest, error: Unusable) -> None:
        """Log why a snapshot is not used; a damaged one is quarantined.

        Raises:
            SnapshotError: it is valid, but incompatible.
        """
        self._reject(self._folder / manifest.name, manifest.run, error)

    def judge(self, manifest: Manifest) -> bool:
        """Whether a snapshot may be used whose shards are spread over the nodes.

        Raises:
            SnapshotError: it is valid, but incompatible.
        """
        if manifest.run != self._identity.run and not self._resume:
            return False
        path = self._folder / manifest.name
        if self._finite and manifest.not_finite:
            self._rejected[path.name] = f"not finite: {manifest.not_finite}"
            self._log(f"skipping {path.name}: {manifest.not_finite}, and policy.onNonFinite is stop")
            return False
        try:
            self._check(manifest)
        except (CorruptError, IncompatibleError) as error:
            self._reject(path, manifest.run, error)
            return False
        return True

    def check_spread(self, incomplete: Sequence[str], *, was_complete: bool, away: int) -> None:
        """As ``check_from_scratch``, where shards are spread over the nodes.

        Args:
            incomplete: names of snapshots that lack shards.
            was_complete: whether a node knows that one of this run was whole. Before the first one is, training may
                start again.
            away: how many nodes are missing: they may come back with what they have.

        Raises:
            SnapshotError: there are snapshots; lists each with its reason.
            StorageUnavailableError: the nodes that are missing may have what is missing.
        """
        if was_complete and away > 0 and not self._from_scratch:
            names = ", ".join(incomplete) or "the snapshots"
            raise StorageUnavailableError(f"no node that is here has all of {names}; {away} of the job are missing")
        if was_complete:
            self._rejected |= dict.fromkeys(incomplete, "no node that is left has some of its parts")
            self._rejected = self._rejected or {"copies": "no node that is left has a part of any"}
        self.check_from_scratch()

    def accepts(self, copy: Manifest) -> bool:
        """Whether an in-memory copy belongs to this run and is compatible."""
        try:
            check(copy, self._identity)
        except (CorruptError, IncompatibleError) as error:
            self.reject_copy(copy, error)
            return False
        return copy.run == self._identity.run

    def reject_copy(self, copy: Manifest, error: Unusable) -> None:
        """Log why an in-memory copy is not used."""
        self._log(f"skipping the in-memory copy of step {copy.step}: {error}")

    def check_from_scratch(self) -> None:
        """Check that training may start from scratch: there was nothing to resume from, or it was requested.

        Raises:
            SnapshotError: there are snapshots; lists each with its reason.
        """
        if not self._rejected:
            return
        each = "; ".join(f"{name}: {reason}" for name, reason in self._rejected.items())
        if not self._from_scratch:
            raise SnapshotError(
                f"no snapshot in {self._folder} is usable, and training does not start from scratch while there are "
                f"some: {each}. Restore a good one, or start over on purpose: kitctl submit --from-scratch "
                "(fromScratch: true in the job file, KIT_FROM_SCRATCH=1)"
            )
        self._log(f"starting from scratch, as requested; the snapshots in {self._folder} are kept: {each}")

    def _relevant(self) -> list[_Candidate]:
        """This run's, and those of an unknown owner; then those of earlier runs, if they are used too."""
        found = retry_io(self._scan, self._folder, self._log)
        own = [one for one in found if one.run in {self._identity.run, None}]
        return own + ([one for one in found if one not in own] if self._resume else [])

    def _scan(self) -> list[_Candidate]:
        return [self._inspect(one) for one in list_folders(self._folder) if one.published or one.quarantined]

    def _inspect(self, folder: SnapshotFolder) -> _Candidate:
        try:
            manifest = snapshot.read_manifest(folder.path)
        except (CorruptError, IncompatibleError) as error:
            return _Candidate(folder=folder, run=Fence(self._folder).owner(folder.generation), error=error)
        return _Candidate(folder=folder, run=manifest.run, manifest=manifest)

    def _checked(self, one: _Candidate) -> Manifest:
        if one.manifest is None:
            raise one.error or CorruptError("it has no manifest")
        self._check(one.manifest)
        return one.manifest

    def _check(self, manifest: Manifest) -> None:
        try:
            check(manifest, self._identity)
        except OrderMismatchError:
            if self._resume != "state":
                raise

    def _reject(self, path: Path, run: str | None, error: Unusable) -> None:
        if isinstance(error, IncompatibleError) and not self._from_scratch:
            raise SnapshotError(self._incompatible(path, run, error)) from error
        self._rejected[path.name] = str(error)
        renamed = f"; {_quarantine(path)}" if isinstance(error, CorruptError) else ""
        self._log(f"skipping {path}: {error}{renamed}")

    def _incompatible(self, path: Path, run: str | None, error: IncompatibleError) -> str:
        owner = "this run" if run == self._identity.run else f"run {run or 'unknown'}"
        fix = "restore the old settings, or move the snapshot away"
        if isinstance(error, OrderMismatchError):
            fix += "; resume: state (--resume-state) resumes its weights and optimizer in the new order"
        return f"{path} is of {owner}, but {error}; start a new run, {fix}"


def _quarantine(path: Path) -> str:
    """Rename a damaged snapshot; returns what happened, for the log."""
    bad = quarantine_path(path)
    try:
        path.rename(bad)
    except FileNotFoundError:
        return "another process has renamed it"
    except OSError as error:  # such as a read-only folder: the next start skips it again
        return f"it cannot be renamed ({error})"
    return f"renamed to {bad.name}"
