"""A working folder that is sent with a job, as values: its files by digest, and the archive of a small one. Pure.

The store of such folders has one layout everywhere (on this machine, on a claim, in an archive): ``blobs/<sha256>``
holds a file's bytes, ``trees/<sha256>.json`` says which blob is which file. ``kittrain.agent.setup.workdir`` reads it.

Why: decision 38.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from kitctl.code.trainer_package import TrainerPackage

TREE_VERSION: Final = 1  # of the format
ARCHIVE_LIMIT: Final = 900 * 1024  # bytes; a ConfigMap holds 1 MiB
FOLDER_LIMIT: Final = 200 << 20  # bytes, before compression
FILES_LIMIT: Final = 20_000


class CodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file: its size in bytes, the digest of its content, and whether it may be executed."""

    sha256: str
    size: int
    executable: bool = False


class CodeTree(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The files and symbolic links of a folder, by relative path with ``/``."""

    files: Mapping[str, CodeFile]
    links: Mapping[str, str] = msgspec.field(default_factory=dict)  # to a path relative to the link's folder

    @cached_property
    def encoded(self) -> bytes:
        """The tree as it is stored; equal trees are equal bytes."""
        files = {
            path: {"sha256": one.sha256, "size": one.size} | ({"executable": True} if one.executable else {})
            for path, one in sorted(self.files.items())
        }
        tree = {"version": TREE_VERSION, "files": files, "links": dict(sorted(self.links.items()))}
        return json.dumps(tree, separators=(",", ":")).encode()

    @cached_property
    def digest(self) -> str:
        """Identifies the tree: the SHA-256 of its stored form."""
        return hashlib.sha256(self.encoded).hexdigest()

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(one.size for one in self.files.values())

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """A path for each different content, by digest."""
        return {one.sha256: path for path, one in self.files.items()}


class SentFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is sent with a job.

    ``archive`` is None if it is larger than ``ARCHIVE_LIMIT``; ``key`` of the job file asks for it; ``places`` has
    where files are that are not in the folder, or their content; ``left_out`` the paths that are not sent, by reason;
    ``credentials`` those that are sent, and look like one.
    """

    folder: Path
    tree: CodeTree
    archive: bytes | None
    key: str = "workdir"
    places: Mapping[str, Path | bytes] = msgspec.field(default_factory=dict)
    left_out: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    credentials: tuple[str, ...] = ()

    @property
    def archive_key(self) -> str:
        """The key of the archive in a ConfigMap, and the name of the file in the pods."""
        return f"{self.tree.digest}.tar.gz"

    @property
    def binary_data(self) -> dict[str, str]:
        """A ConfigMap's ``binaryData`` with the archive; empty if the folder is too large for one."""
        return {self.archive_key: base64.b64encode(self.archive).decode()} if self.archive is not None else {}


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent with a job: text files by relative path, or a whole folder; what its script requires; kittrain."""

    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    workdir: SentFolder | None = None
    requirements: SentFolder | None = None
    trainer: TrainerPackage | None = None

    @property
    def folders(self) -> tuple[SentFolder, ...]:
        """The folders, without those that are not given."""
        return tuple(one for one in (self.workdir, self.requirements) if one)


def blob_name(digest: str) -> str:
    """Where a store has a file's bytes."""
    return f"blobs/{digest}"


def tree_name(digest: str) -> str:
    """Where a store has a tree."""
    return f"trees/{digest}.json"


NO_SOURCES: Final = Sources()
