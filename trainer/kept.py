"""The ranks' logs that were kept beside the snapshots: ``python -m trainer.kept FOLDER`` prints them, rank by rank.

For whoever looks after the nodes are gone; each line carries its rank in front, as the node printed it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FILE: Final = re.compile(r"rank-(\d+)\.log")


def files(folder: Path) -> list[tuple[int, Path]]:
    """The kept files by rank, those of one rank by age: each node that it was on keeps one in a folder of its own.

    Raises:
        OSError: a folder is there, and cannot be read.
    """
    if not folder.is_dir():
        return []
    nodes = [path for path in folder.iterdir() if path.is_dir()]
    found = [(path, _FILE.fullmatch(path.name)) for node in nodes for path in node.iterdir()]
    kept = [(int(match[1]), path) for path, match in found if match]
    return sorted(kept, key=lambda one: (one[0], one[1].stat().st_mtime))


def lines(folder: Path) -> Iterator[bytes]:
    """All kept lines, each as ``[rank 7]: text`` with its end."""
    for rank, path in files(folder):
        with path.open("rb") as file:
            for line in file:
                yield b"[rank %d]: %s\n" % (rank, line.rstrip(b"\n"))


def main() -> None:
    """Print them."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - this program and a folder
        sys.exit("usage: python -m trainer.kept FOLDER")
    sys.stdout.buffer.writelines(lines(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
