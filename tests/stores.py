"""Stores of folders that are sent with a job, as kitctl makes them."""

from __future__ import annotations

from pathlib import Path

from kitctl.code_tree import blob_name, tree_name
from kitctl.workdir.collecting import collect


def stored(folder: Path, store: Path) -> tuple[str, Path]:
    """The digest of a folder, and the store that it was added to."""
    found = collect(folder, ())
    for name in ("blobs", "trees"):
        (store / name).mkdir(parents=True, exist_ok=True)
    for digest, path in found.tree.paths.items():
        (store / blob_name(digest)).write_bytes((folder / path).read_bytes())
    (store / tree_name(found.tree.digest)).write_bytes(found.tree.encoded)
    return found.tree.digest, store


def packed(folder: Path, place: Path) -> tuple[str, Path]:
    """The digest of a folder, and the archive of it."""
    found = collect(folder, ())
    assert found.archive is not None
    path = place / f"{found.tree.digest}.tar.gz"
    path.write_bytes(found.archive)
    return found.tree.digest, path
