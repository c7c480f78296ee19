"""One snapshot on disk: a folder with the state's files and a manifest that vouches for them.

    step-00000120-g0002/
      state.pt        model, optimizer, scheduler
      rng.pt          every rank's random number generators
      manifest.json   what it is, whose it is, and the digests of the files and of itself

The folder is written under another name and renamed at the very end, so a snapshot is there as a whole or not at all;
what still differs from its digests was damaged later.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from trainer import files
from trainer.data import Cursor
from trainer.ledger import Entry, Ledger

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SCRATCH: Final = ".tmp-"  # what a snapshot is called until it is whole


class CorruptError(Exception):
    """A snapshot is damaged; says what is wrong."""


class ForeignError(Exception):
    """A snapshot is whole, but of another model, other data or another version; says which."""


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The snapshot that a snapshot's history goes on from."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class FileDigest:
    """A file's size in bytes and its SHA-256."""

    size: int
    sha256: str

    @classmethod
    def of(cls, content: files.Buffer) -> FileDigest:
        """Measure a file's content."""
        return cls(size=len(content), sha256=hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a snapshot says about itself.

    Attributes:
        model: signature of the parameters' names, shapes and types.
        data: fingerprint of the data's order, which the cursor means something in.
        created: seconds since 1970.
        ledger: the whole committed history of the run.
        files: size and digest of each file; set when it is written.
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
    data: str
    torch: str
    created: float
    parent: Parent | None
    ledger: Ledger
    files: Mapping[str, FileDigest] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The snapshot's folder."""
        return f"step-{self.step:08}-g{self.generation:04}"

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return _digest(asdict(self))


def write(folder: Path, manifest: Manifest, contents: Mapping[str, files.Buffer]) -> Manifest:
    """Publish a snapshot atomically.

    Args:
        folder: where snapshots are; ``manifest.name`` within it must not exist.
        manifest: what to say about it.
        contents: files by name.

    Returns:
        The manifest as written, which describes the files.

    Raises:
        OSError: it could not be written; nothing of it is left.
    """
    manifest = replace(manifest, files={name: FileDigest.of(content) for name, content in contents.items()})
    scratch = folder / f"{SCRATCH}{manifest.name}"
    try:
        scratch.mkdir()
        for name, content in contents.items():
            files.write(scratch / name, content)
        files.write(scratch / MANIFEST, _dump(asdict(manifest) | {"digest": manifest.digest}))
        files.sync_folder(scratch)
        scratch.rename(folder / manifest.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    files.sync_folder(folder)
    return manifest


def read_manifest(snapshot: Path) -> Manifest:
    """Read and verify a snapshot's manifest.

    Raises:
        CorruptError: it is damaged or missing.
        ForeignError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    try:
        facts = json.loads((snapshot / MANIFEST).read_bytes())
        told, version = facts.pop("digest"), facts["format"]
    except FileNotFoundError as error:
        raise CorruptError(f"{MANIFEST} is missing") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"{MANIFEST} is not readable ({error})") from error
    if _digest(facts) != told:
        raise CorruptError(f"{MANIFEST} differs from its digest")
    if version != FORMAT:
        raise ForeignError(f"it has format {version}, and this version reads {FORMAT}")
    manifest = _manifest(facts)
    if manifest.name != snapshot.name:
        raise CorruptError(f"{MANIFEST} is that of {manifest.name}")
    return manifest


def read_files(snapshot: Path, manifest: Manifest) -> dict[str, bytes]:
    """Read a snapshot's files: these very bytes have been verified, and nothing is left to change before their use.

    Raises:
        CorruptError: a file is missing, or is not what the manifest says.
        OSError: one cannot be read at the moment.
    """
    contents = {}
    for name, expected in manifest.files.items():
        try:
            contents[name] = (snapshot / name).read_bytes()
        except FileNotFoundError as error:
            raise CorruptError(f"{name} is missing") from error
        found = FileDigest.of(contents[name])
        if found.size != expected.size:
            raise CorruptError(f"{name} has {found.size} bytes instead of {expected.size}")
        if found != expected:
            raise CorruptError(f"{name} differs from its digest")
    return contents


def _manifest(facts: dict[str, Any]) -> Manifest:
    facts["cursor"] = Cursor(**facts["cursor"])
    facts["parent"] = Parent(**facts["parent"]) if facts["parent"] else None
    facts["ledger"] = tuple(Entry(**entry) for entry in facts["ledger"])
    facts["files"] = {name: FileDigest(**one) for name, one in facts["files"].items()}
    return Manifest(**facts)


def _dump(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True, indent=1).encode()


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dump(facts)).hexdigest()
