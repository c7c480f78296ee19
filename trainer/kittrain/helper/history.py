"""Prints the history of a job's runs: ``python -P -m kittrain.helper.history FOLDER``; kitctl runs it next to the data.

FOLDER has the folder ``history``. Each line is one of ``kitjob.timeline``, after a line that names its run:
``{"run": "...", "node": 0}``. Lines that a kill cut short are left out. Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from kitjob import timeline


def lines(folder: Path) -> Iterator[bytes]:
    """All lines of all runs, the oldest run first; nothing if there is no history.

    Raises:
        OSError: a file cannot be read.
    """
    top = folder / timeline.FOLDER
    runs = [one for one in top.iterdir() if one.is_dir()] if top.is_dir() else []
    for run in sorted(runs, key=lambda one: (one.stat().st_mtime, one.name)):
        for path in sorted(run.glob("node-*/[0-9]*.jsonl")):
            yield json.dumps({"run": run.name}).encode() + b"\n"
            whole, _, _ = _content(path).rpartition(b"\n")
            yield from (one + b"\n" for one in whole.split(b"\n") if timeline.decode(one))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # joined with another one meanwhile
        return b""


def main() -> None:
    """Print them."""
    if len(sys.argv) != 2:  # noqa: PLR2004
        sys.exit("usage: python -m kittrain.helper.history FOLDER")
    sys.stdout.buffer.writelines(lines(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
