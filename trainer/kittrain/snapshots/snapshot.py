"""One snapshot on disk: a folder with a shard from each rank that wrote, and a manifest that vouches for them.

    step-00000120-g0002/
      shard-00000.bin   rank 0's part of the state
      shard-00001.bin   rank 1's
      manifest.json     what it is, whose it is, and the digests of the shards and of itself

The folder is written under another name and renamed at the very end, so a snapshot is there as a whole or not at all;
what still differs from its digests was damaged later.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kittrain.snapshots import shards
from kittrain.snapshots.ledger import Entry, Ledger, Segment
from kittrain.snapshots.shardfile import ShardFile
from kittrain.snapshots.shards import CorruptError, Shard
from kittrain.system import files
from kittrain.system.storage import detect_damage
from kittrain.world.order import Cursor

FORMAT: Final = 2
MANIFEST: Final = "manifest.json"
MODEL: Final = "model/"  # what the names of the model's tensors begin with
REST: Final = "rest"  # in rank 0's shard: all of the state that is no tensor
SCRATCH: Final = ".tmp-"  # what a snapshot is called until it is whole
ASIDE: Final = "bad-"  # what a damaged one is called once a run has met it


class ForeignError(Exception):
    """A snapshot is whole, but of another model, other data or another version; says which."""


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The snapshot that a snapshot's history goes on from."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a snapshot says about itself.

    Attributes:
        model: signature of the parameters' names, shapes and types.
        optimizer: its class.
        data: fingerprint of the data's order, which the cursor means something in.
        samples: size of the data set.
        batch: samples in a step, over all ranks.
        created: seconds since 1970.
        ledger: the whole committed history of the run.
        earlier: the parts of that history which went by another order of the data; most have none.
        metrics: what was measured behind the epoch that this snapshot ends; none within an epoch.
        shards: by number; as many as there were writers.
    """

    format: int = FORMAT
    job: str
    run: str
    generation: int
    step: int
    cursor: Cursor
    world_size: int
    seed: int
    model: str
    optimizer: str
    data: str
    samples: int
    batch: int
    torch: str
    created: float
    parent: Parent | None
    ledger: Ledger
    earlier: tuple[Segment, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()

    @property
    def name(self) -> str:
        """The snapshot's folder."""
        return name(self.step, self.generation)

    @property
    def segment(self) -> Segment:
        """The part of the history that went by its order of the data."""
        entries = len(self.ledger)
        return Segment(entries=entries, samples=self.samples, batch=self.batch, seed=self.seed, data=self.data)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return _digest(facts_of(self))


def name(step: int, generation: int) -> str:
    """The folder of the snapshot behind a step of a generation."""
    return f"step-{step:08}-g{generation:04}"


def facts_of(manifest: Manifest) -> dict[str, Any]:
    """What the file holds, but for the digest; a history in one order is written as if there were no others."""
    facts = asdict(manifest)
    if not manifest.earlier:
        del facts["earlier"]
    return facts


def seal(scratch: Path, manifest: Manifest) -> None:
    """Put the manifest to the shards, which are written through to the disk already.

    Raises:
        OSError: it could not be written.
    """
    files.write(scratch / MANIFEST, _dump(facts_of(manifest) | {"digest": manifest.digest}))
    files.sync_folder(scratch)


def publish(scratch: Path, snapshot: Path) -> None:
    """Give a sealed snapshot its name, in the same folder.

    Raises:
        OSError: it could not be renamed.
    """
    scratch.rename(snapshot)
    files.sync_folder(snapshot.parent)


def read_manifest(snapshot: Path) -> Manifest:
    """Read and verify a snapshot's manifest.

    Raises:
        CorruptError: it is damaged or missing.
        ForeignError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    with detect_damage(snapshot / MANIFEST, CorruptError):
        content = (snapshot / MANIFEST).read_bytes()
    try:
        facts = json.loads(content)
        told, version = facts.pop("digest"), facts["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"{MANIFEST} is not readable ({error})") from error
    if _digest(facts) != told:
        raise CorruptError(f"{MANIFEST} differs from its digest")
    if version != FORMAT:
        raise ForeignError(f"it has format {version}, and this version reads {FORMAT}")
    try:
        manifest = _manifest(facts)
    except (KeyError, TypeError) as error:  # its digest holds, so somebody meant it
        raise ForeignError(f"its manifest is that of another version ({error})") from error
    if not snapshot.name.endswith(manifest.name):  # it may have been put aside
        raise CorruptError(f"{MANIFEST} is that of {manifest.name}")
    return manifest


def open_shards(snapshot: Path, manifest: Manifest) -> Iterator[ShardFile]:
    """All shards of a snapshot, one after the other, by number; size and tail of each have been verified.

    Raises:
        CorruptError: one is missing or not what the manifest says.
        OSError: one cannot be read at the moment.
    """
    for number, told in enumerate(manifest.shards):
        yield ShardFile(snapshot / shards.name(number), told)


def verify(snapshot: Path) -> Manifest:
    """Read every byte of a snapshot; gives its manifest.

    Raises:
        CorruptError: it is damaged; says where.
        ForeignError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    manifest = read_manifest(snapshot)
    for shard in open_shards(snapshot, manifest):
        shard.verify()
    return manifest


def discard(scratch: Path) -> None:
    """Remove what was half-written, as far as that is possible now: whoever writes it may be doing so still."""
    shutil.rmtree(scratch, ignore_errors=True)
    with suppress(OSError):  # it was a folder
        scratch.unlink()


def _manifest(facts: dict[str, Any]) -> Manifest:
    facts["cursor"] = Cursor(**facts["cursor"])
    facts["parent"] = Parent(**facts["parent"]) if facts["parent"] else None
    facts["ledger"] = tuple(Entry(**entry) for entry in facts["ledger"])
    facts["earlier"] = tuple(Segment(**segment) for segment in facts.get("earlier", ()))
    facts["shards"] = tuple(Shard(**shard) for shard in facts["shards"])
    return Manifest(**facts)


def _dump(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True, indent=1).encode()


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dump(facts)).hexdigest()
