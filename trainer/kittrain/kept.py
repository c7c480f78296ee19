"""What nodes printed, as they kept it beside the snapshots (``kittrain.node.keeping``): their lives, and their lines.

``python -m kittrain.kept FOLDER --list`` tells which lives of nodes there are, each as a line of JSON: ``node``,
``pod``, ``begun`` (Unix seconds) and ``file``. ``python -m kittrain.kept FOLDER [FILE...]`` prints the lines of these,
or of all, in the order of time, each as ``<node> <time> <text>``.
"""

from __future__ import annotations

import heapq
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_FILE: Final = re.compile(r"node-(\d+)/(\d+)-(.+)\.log")
_TIMED: Final = re.compile(rb"\d{4}-\d\d-\d\dT\S+Z ")


@dataclass(frozen=True, kw_only=True)
class Life:
    """One life of a node, and the file of its lines, below the folder."""

    node: int
    begun: float
    pod: str
    file: str


def lives(folder: Path) -> list[Life]:
    """All that are kept, by node and age.

    Raises:
        OSError: a folder is there, and cannot be read.
    """
    if not folder.is_dir():
        return []
    files = (f"{node.name}/{path.name}" for node in folder.iterdir() if node.is_dir() for path in node.iterdir())
    found = filter(None, map(_FILE.fullmatch, files))
    kept = [Life(node=int(one[1]), begun=int(one[2]) / 1000, pod=one[3], file=one[0]) for one in found]
    return sorted(kept, key=lambda life: (life.node, life.begun))


def lines(folder: Path, kept: Iterable[Life]) -> Iterator[bytes]:
    """The lines of several lives in the order of time."""
    return (line for _, line in heapq.merge(*(_timed(folder, life) for life in kept), key=lambda pair: pair[0]))


def _timed(folder: Path, life: Life) -> Iterator[tuple[bytes, bytes]]:
    """Each line with what it is sorted by: one that was cut short has the time of the one before."""
    time, node = b"", b"%d " % life.node
    with (folder / life.file).open("rb") as file:
        for line in file:
            time = line.partition(b" ")[0] if _TIMED.match(line) else time
            yield time, node + line.rstrip(b"\n") + b"\n"


def main() -> None:
    """Print them."""
    if len(sys.argv) == 1:
        sys.exit("usage: python -m kittrain.kept FOLDER [--list | FILE...]")
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    kept = lives(folder)
    if wanted == ["--list"]:
        sys.stdout.buffer.writelines(json.dumps(asdict(life)).encode() + b"\n" for life in kept)
    else:
        sys.stdout.buffer.writelines(lines(folder, [life for life in kept if not wanted or life.file in wanted]))


if __name__ == "__main__":
    main()
