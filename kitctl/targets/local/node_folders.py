"""Shows the folders of all nodes as one: where each node has its own, each has a part of every snapshot.

What is not whole is left out: its other parts were on nodes that are lost, and the run went on from another one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MANIFEST: Final = "manifest.json"
NODE: Final = "node-*"


def are_there(folder: Path) -> bool:
    """Whether a job's folder of snapshots has one for each node."""
    return any(folder.glob(NODE))


@contextmanager
def as_one(folder: Path) -> Iterator[Path]:
    """A folder with links to what the nodes have; of two writings of one snapshot, what the newest manifest names."""
    with tempfile.TemporaryDirectory(prefix="kit-") as merged:
        for node in sorted(folder.glob(NODE), key=lambda one: one.name):
            for path in node.iterdir():
                _link(path, Path(merged) / path.name)
        for snapshot in Path(merged).glob("step-*"):
            if not _is_whole(snapshot):
                shutil.rmtree(snapshot)
        yield Path(merged)


def _link(path: Path, to: Path) -> None:
    """Link a file, or those of a snapshot."""
    if not path.is_dir():
        if not to.exists():
            to.symlink_to(path)
        return
    if to.exists() and not _same(path / MANIFEST, to / MANIFEST):
        return
    to.mkdir(exist_ok=True)
    for file in path.iterdir():
        if not (to / file.name).exists():
            (to / file.name).symlink_to(file)


def _is_whole(snapshot: Path) -> bool:
    """Whether some node has each shard; a damaged manifest is for the tool to judge."""
    try:
        shards = len(json.loads((snapshot / MANIFEST).read_bytes())["shards"])
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return len([*snapshot.glob("shard-*.bin")]) >= shards


def _same(one: Path, other: Path) -> bool:
    """Whether two nodes have the same manifest, or folders that have none."""
    contents = [path.read_bytes() if path.is_file() else b"" for path in (one, other)]
    return contents[0] == contents[1]
