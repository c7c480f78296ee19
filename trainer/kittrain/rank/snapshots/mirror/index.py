"""What a mirror has, in one object that is only ever replaced as a whole and under a condition. Pure.

Each writer claims the mirror before it writes. A claim changes the object, so what an earlier writer replaces after it
fails, wherever that writer runs: this is the mirror's fence. Data are written under the claim's own name and count only
once the index names them, so nothing has to be listed, and a writer that is cut off leaves nothing that is read.

Why: decision 61.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.rank.snapshots.mirror.errors import (
    MirrorDamagedError,
    MirrorError,
    MirrorHandedOverError,
    MirrorTakenError,
)

FORMAT: Final = 1
INDEX: Final = "mirror.json"
DATA: Final = "data"
PAST: Final = 32  # claims before the present one that are remembered, to delete what they left


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A file: its path below the snapshot folder, its object, its bytes."""

    path: str
    key: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A snapshot, with what retention decides by."""

    name: str
    run: str
    generation: int
    step: int
    data: str
    created: float
    digest: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    not_finite: str = ""
    files: tuple[Copied, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(one.size for one in self.files)

    @property
    def age(self) -> tuple[int, int]:
        """Sort key, as that of folders: later is greater."""
        return self.generation, self.step


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who may write: a run, by one process of it."""

    run: str
    job: str
    claim: str
    host: str
    since: float


@dataclass(frozen=True, kw_only=True)
class Index:
    """The mirror's contents. ``write`` is unique for each version, so that a writer knows its own."""

    format: int = FORMAT
    write: str = ""
    owner: Owner
    runs: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    snapshots: tuple[Entry, ...] = ()
    history: tuple[Copied, ...] = ()

    @property
    def newest(self) -> list[Entry]:
        """The snapshots, the newest first."""
        return sorted(self.snapshots, key=lambda one: one.age, reverse=True)

    @property
    def size(self) -> int:
        """Bytes of all snapshots."""
        return sum(one.size for one in self.snapshots)


def parse(content: bytes, url: str) -> Index:
    """The index from its object.

    Raises:
        MirrorError: another version has written it.
        MirrorDamagedError: it is no index.
    """
    try:
        found: Any = typed.parse(content)
        if found.get("format") != FORMAT:
            raise MirrorError(
                f"snapshots.mirror: {url} has format {found.get('format')}, and this version reads {FORMAT}; fix: use "
                "the version of kittrain that wrote it, or another prefix"
            )
        return typed.decode(Index, found)  # type: ignore[no-any-return]
    except (MalformedError, AttributeError) as error:
        raise MirrorDamagedError(f"{url}/{INDEX} is no index of a mirror: {error}") from error


def check_run(index: Index, run: str, *, resume: bool, url: str) -> None:
    """Check that a run may use the mirror: it is its own, or it continues it on purpose.

    Raises:
        MirrorError: it may not.
    """
    if index.owner.run != run and not resume:
        raise MirrorError(
            f"snapshots.mirror: {url} is that of run {index.owner.run} (job {index.owner.job!r}); fix: choose another "
            f"prefix, or continue that run with this job: kitctl submit --continue {url}"
        )


def claimed(index: Index, owner: Owner) -> Index:
    """The index with another owner; data of earlier claims that it does not name may be deleted."""
    runs = index.runs if owner.run == index.owner.run else (*index.runs, index.owner.run)
    return replace(index, owner=owner, runs=runs, past=(*index.past, index.owner.claim)[-PAST:])


def check_owner(index: Index, owner: Owner, url: str) -> None:
    """Check that a claim still holds.

    Raises:
        MirrorTakenError: a later one has taken over.
    """
    now = index.owner
    if now.claim != owner.claim:
        own = now.run == owner.run
        who = "another node of this run" if own else f"run {now.run} (job {now.job!r})"
        text = f"{url} is now written by {who}, on {now.host}: this node does not copy to it any more"
        raise MirrorHandedOverError(text) if own else MirrorTakenError(text)


def added(index: Index, entry: Entry, dropped: Sequence[Entry] = ()) -> Index:
    """The index with a snapshot, in place of one of its name, and without others."""
    gone = {entry.name, *(one.name for one in dropped)}
    return replace(index, snapshots=(*(one for one in index.snapshots if one.name not in gone), entry))


def lineage(index: Index, entry: Entry) -> list[Entry]:
    """The snapshots that a run's retention decides about once this one is added, in order, it included.

    Those of other runs, in another order of the data, or of a branch that was left are kept.
    """
    same = [one for one in index.snapshots if (one.run, one.data) == (entry.run, entry.data)]
    before = [one for one in same if one.age < entry.age and one.step < entry.step]
    return [*sorted(before, key=lambda one: one.age), entry]


def leftovers(index: Index, keys: Sequence[str]) -> list[str]:
    """Which objects nobody needs: of earlier claims, and not named by the index."""
    named = {one.key for entry in index.snapshots for one in entry.files} | {one.key for one in index.history}
    return [key for key in keys if key not in named and key.split("/")[1:2] and key.split("/")[1] in index.past]
