"""Code stores as kitctl creates them."""

from __future__ import annotations

from pathlib import Path

from kitctl.code.code_tree import blob_name, tree_name
from kitctl.code.workdir.collecting import collect


def stored(folder: Path, store: Path) -> tuple[str, Path]:
    """Add a folder to a store; returns the folder's digest and the store."""
    found = collect(folder, ())
    for name in ("blobs", "trees"):
        (store / name).mkdir(parents=True, exist_ok=True)
    for digest, path in found.tree.paths.items():
        (store / blob_name(digest)).write_bytes((folder / path).read_bytes())
    (store / tree_name(found.tree.digest)).write_bytes(found.tree.encoded)
    return found.tree.digest, store


def packed(folder: Path, place: Path) -> tuple[str, Path]:
    """Pack a folder; returns its digest and the archive."""
    found = collect(folder, ())
    assert found.archive is not None
    path = place / f"{found.tree.digest}.tar.gz"
    path.write_bytes(found.archive)
    return found.tree.digest, path
