"""A job's own copy of the folder that was submitted, in a store with the layout of ``kitctl.code.code_tree``.

Jobs share the content of equal files, by hard links from a pool; a file of the pool that no job has is removed.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kitctl.code.code_tree import SentFolder, blob_name, tree_name
from kitctl.code.workdir.reading import changed, content

READ_ONLY: Final = 0o444
STORE: Final = "code"  # in a job's folder
POOL: Final = "blobs"  # in the state folder


def add(folders: Iterable[SentFolder], job: Path, state: Path) -> None:
    """Copy the files to the store in a job's folder, if there are any.

    Raises:
        SpecError: one has changed since it was read.
        OSError: one cannot be read or written.
    """
    for sent in folders:
        _add(sent, job / STORE, state / POOL)


def remove_unused(state: Path) -> None:
    """Remove the files of the pool that no job has any more."""
    with suppress(OSError):
        for path in (state / POOL).iterdir():
            if path.stat().st_nlink == 1:
                path.unlink(missing_ok=True)


def _add(sent: SentFolder, store: Path, pool: Path) -> None:
    pool.mkdir(mode=0o700, parents=True, exist_ok=True)
    pool.chmod(0o700)  # it has files that others may not read, and an earlier version made it readable
    for name in ("blobs", "trees"):
        (store / name).mkdir(parents=True, exist_ok=True)
    for digest, path in sent.tree.paths.items():
        blob = store / blob_name(digest)
        shared = pool / digest
        if not (_is_whole(shared, digest) and _link(shared, blob)):
            _write(content(sent, path), blob, digest, path)
            shared.unlink(missing_ok=True)
            _link(blob, shared)
    (store / tree_name(sent.tree.digest)).write_bytes(sent.tree.encoded)


def _is_whole(path: Path, digest: str) -> bool:
    """Whether a file of the pool is there, and as it was: a power cut may have emptied it, or a rank changed it."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False


def _link(existing: Path, new: Path) -> bool:
    """Make a hard link; False if there is nothing to link to, or the file system has no links."""
    try:
        os.link(existing, new)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _write(data: bytes, target: Path, digest: str, name: str) -> None:
    """Write a file; it has its name only once it is complete, and is what was read before."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise changed(name)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    draft.write_bytes(data)
    draft.chmod(READ_ONLY)
    draft.replace(target)
