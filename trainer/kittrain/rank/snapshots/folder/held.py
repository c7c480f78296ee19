"""What the folders of nodes hold of snapshots whose shards are spread over them, and which snapshots are complete.

Each node's folder has the whole manifest of a snapshot, and some of its shards. A shard is there under its name only
once it is whole, so a folder's list of names is what it holds. Needs no torch.

Why: decision 62.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.listing import list_folders
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest


@dataclass(frozen=True, kw_only=True)
class SnapshotId:
    """Which snapshot, on whichever node.

    Attributes:
        digest: of the manifest.
    """

    step: int
    generation: int
    digest: str

    @property
    def name(self) -> str:
        """Of the snapshot's folder."""
        return snapshot.name(self.step, self.generation)

    @property
    def key(self) -> tuple[int, int, str]:
        """Sorts by age, the newest last; equal for the same snapshot on all nodes."""
        return self.generation, self.step, self.digest


@dataclass(frozen=True, kw_only=True)
class Held(SnapshotId):
    """What one folder holds of a snapshot.

    Attributes:
        shards: that the snapshot has.
        numbers: of those that are here.
    """

    shards: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Spread(SnapshotId):
    """A snapshot on several nodes.

    Attributes:
        holders: of each shard, in the order of the places that were given.
    """

    holders: tuple[tuple[int, ...], ...]

    @property
    def missing(self) -> list[int]:
        """The shards that nobody holds."""
        return [number for number, holders in enumerate(self.holders) if not holders]


def spread(held: Mapping[int, Iterable[Held]]) -> list[Spread]:
    """All snapshots, the newest first: by generation, then by step.

    Args:
        held: by place, which is any number.
    """
    found: dict[tuple[int, int, str], dict[int, list[int]]] = {}
    sizes: dict[tuple[int, int, str], int] = {}
    for place, ones in held.items():
        for one in ones:
            holders = found.setdefault(one.key, {})
            sizes[one.key] = max(one.shards, sizes.get(one.key, 0))
            for number in one.numbers:
                holders.setdefault(number, []).append(place)
    return [
        Spread(
            step=step,
            generation=generation,
            digest=digest,
            holders=tuple(tuple(found[key].get(number, ())) for number in range(sizes[key])),
        )
        for key in sorted(found, reverse=True)
        for generation, step, digest in [key]
    ]


def complete(snapshots: Sequence[Spread]) -> list[Spread]:
    """Those of which each shard is held by somebody."""
    return [one for one in snapshots if one.holders and not one.missing]


@dataclass
class Holdings:
    """Reads what a folder holds; a manifest is read once as long as it does not change."""

    folder: Path
    _known: dict[tuple[str, int, int], Manifest] = field(default_factory=dict)

    def scan(self) -> list[Held]:
        """What is there now, the newest first; damaged manifests are left out.

        Raises:
            OSError: the folder cannot be listed.
        """
        found, known = [], self._known
        self._known = {}
        for one in list_folders(self.folder):
            if not one.published:
                continue
            with suppress(CorruptError, IncompatibleError, OSError):  # it is being replaced, or pruned
                status = (one.path / snapshot.MANIFEST).stat()
                key = one.path.name, status.st_ino, status.st_mtime_ns
                manifest = known.get(key) or snapshot.read_manifest(one.path)
                self._known[key] = manifest
                found.append(of_manifest(one.path, manifest))
        return found

    def manifest(self, name: str, digest: str) -> Manifest | None:
        """A manifest that the last scan has read; None: there was none."""
        return next((one for one in self._known.values() if one.name == name and one.digest == digest), None)


def of_manifest(path: Path, manifest: Manifest) -> Held:
    """What a snapshot's folder holds.

    Raises:
        OSError: it cannot be listed.
    """
    there = {entry.name for entry in path.iterdir()}
    total = len(manifest.shards)
    numbers = tuple(number for number in range(total) if shards.name(number) in there)
    return Held(
        step=manifest.step, generation=manifest.generation, digest=manifest.digest, shards=total, numbers=numbers
    )
