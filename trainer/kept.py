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
    """The kept files by rank, in its order; none if nothing was kept there.

    Raises:
        OSError: the folder is there, and cannot be read.
    """
    if not folder.is_dir():
        return []
    return sorted((int(match[1]), path) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name)))


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
