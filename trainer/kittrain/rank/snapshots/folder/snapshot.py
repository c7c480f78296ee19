"""One snapshot on disk: a folder with a shard from each writing rank, and a manifest with their digests.

    step-00000120-g0002/
      shard-00000.bin   rank 0's part of the state
      shard-00001.bin   rank 1's
      manifest.json     metadata of the snapshot, the digests of the shards, and its own digest

The folder is written under a scratch name and renamed at the end, so a snapshot is complete or absent. A later
difference from the digests is damage.
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

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import CorruptError, Shard
from kittrain.rank.snapshots.folder.ledger import Entry, Ledger, Segment
from kittrain.rank.world.order import Cursor
from kittrain.system import files
from kittrain.system.storage import detect_damage

FORMAT: Final = 2
MANIFEST: Final = "manifest.json"
MODEL: Final = "model/"  # prefix of the names of the model's tensors
REST: Final = "rest"  # an extra of rank 0's shard: the state without its tensors
SCRATCH: Final = ".tmp-"  # prefix of a snapshot's folder until it is complete
REPLACED: Final = ".replaced-"  # prefix of a snapshot's folder while another of the same step takes its place
QUARANTINE: Final = "bad-"  # prefix of a damaged snapshot's folder, once a run has found it


class IncompatibleError(Exception):
    """A snapshot is valid, but of another model, other data or another version; says which."""


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The snapshot that a snapshot's history continues."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The metadata of a snapshot.

    Attributes:
        model: signature of the parameters' names, shapes and types.
        optimizer: its class.
        data: fingerprint of the data's order, which the cursor refers to.
        samples: size of the data set.
        batch: samples in a step, over all ranks.
        created: seconds since 1970.
        ledger: the whole committed history of the run.
        earlier: the segments of that history in other orders of the data; usually empty.
        metrics: measured at this step, at the end of an epoch for example; usually empty.
        not_finite: why the state is not finite, such as ``the loss of step 31 is nan``; empty if nothing was found.
        shards: by number; one per writer.
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
    not_finite: str = ""
    shards: tuple[Shard, ...] = ()

    @property
    def name(self) -> str:
        """The name of the snapshot's folder."""
        return name(self.step, self.generation)

    @property
    def segment(self) -> Segment:
        """The last segment of the history, in the snapshot's own order of the data."""
        entries = len(self.ledger)
        return Segment(entries=entries, samples=self.samples, batch=self.batch, seed=self.seed, data=self.data)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole manifest."""
        return _digest(facts_of(self))


def name(step: int, generation: int) -> str:
    """The name of the folder of a generation's snapshot after a step."""
    return f"step-{step:08}-g{generation:04}"


def facts_of(manifest: Manifest) -> dict[str, Any]:
    """The file's contents without the digest. What is rarely needed is omitted if empty: earlier versions read it."""
    facts = asdict(manifest)
    for key in ("earlier", "not_finite"):
        if not facts[key]:
            del facts[key]
    return facts


def write_manifest(scratch: Path, manifest: Manifest) -> None:
    """Add the manifest to a folder whose shards are written and synced.

    Raises:
        OSError: it could not be written.
    """
    files.write(scratch / MANIFEST, _dump(facts_of(manifest) | {"digest": manifest.digest}))
    files.sync_folder(scratch)


def publish(scratch: Path, snapshot: Path) -> None:
    """Rename a complete snapshot to its final name, in the same folder, in place of one that has it.

    The replaced one exists until then under another name, which ``restore_replaced`` finds after a crash.

    Raises:
        OSError: it could not be renamed.
    """
    replaced = snapshot.with_name(f"{REPLACED}{snapshot.name}")
    if snapshot.exists():
        snapshot.rename(replaced)
        files.sync_folder(snapshot.parent)
    try:
        scratch.rename(snapshot)
    except OSError:
        restore_replaced(snapshot.parent)
        raise
    files.sync_folder(snapshot.parent)
    discard(replaced)


def restore_replaced(folder: Path) -> None:
    """Undo a replacement that was interrupted before the new snapshot had its final name; else complete it.

    Raises:
        OSError: the folder cannot be changed.
    """
    for replaced in [one for one in folder.iterdir() if one.name.startswith(REPLACED)] if folder.exists() else []:
        snapshot = replaced.with_name(replaced.name.removeprefix(REPLACED))
        if snapshot.exists():
            files.sync_folder(folder)  # a writer that was killed may not have
            discard(replaced)
        else:
            replaced.rename(snapshot)
            files.sync_folder(folder)


def read_manifest(snapshot: Path) -> Manifest:
    """Read and verify a snapshot's manifest.

    Raises:
        CorruptError: it is damaged or missing.
        IncompatibleError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    with detect_damage(snapshot / MANIFEST, CorruptError):
        content = (snapshot / MANIFEST).read_bytes()
    try:
        facts = json.loads(content)
        digest, version = facts.pop("digest"), facts["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"{MANIFEST} is not readable ({error})") from error
    if _digest(facts) != digest:
        raise CorruptError(f"{MANIFEST} differs from its digest")
    if version != FORMAT:
        raise IncompatibleError(f"it has format {version}, and this version reads {FORMAT}")
    try:
        manifest = _manifest(facts)
    except (KeyError, TypeError) as error:  # the digest matches, so it was written this way
        raise IncompatibleError(f"its manifest is that of another version ({error})") from error
    if not snapshot.name.endswith(manifest.name):  # the folder may be quarantined
        raise CorruptError(f"{MANIFEST} is that of {manifest.name}")
    return manifest


def open_shards(snapshot: Path, manifest: Manifest) -> Iterator[ShardFile]:
    """All shards of a snapshot, by number; verifies the size and the tail of each.

    Raises:
        CorruptError: one is missing or does not match the manifest.
        OSError: one cannot be read at the moment.
    """
    for number, shard in enumerate(manifest.shards):
        yield ShardFile(snapshot / shards.name(number), shard)


def verify(snapshot: Path) -> Manifest:
    """Read and check every byte of a snapshot; returns its manifest.

    Raises:
        CorruptError: it is damaged; says where.
        IncompatibleError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    manifest = read_manifest(snapshot)
    for shard in open_shards(snapshot, manifest):
        shard.verify()
    return manifest


def discard(scratch: Path) -> None:
    """Delete unfinished files, as far as possible: a fenced-off writer may still be writing them."""
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
