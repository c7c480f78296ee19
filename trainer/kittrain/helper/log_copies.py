"""Lists and prints the copies of the nodes' logs that lie next to the snapshots (``kittrain.agent.report.log_copy``).

``python -m kittrain.helper.log_copies FOLDER --list`` prints each run of an agent as a line of JSON: ``node``, ``pod``,
``started`` (Unix seconds) and ``file``. ``python -m kittrain.helper.log_copies FOLDER [FILE...]`` prints the lines of
these files, or of all, sorted by time, each as ``<node> <time> <text>``.
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
class AgentRun:
    """One run of a node's agent; ``file`` is relative to the folder, ``started`` in Unix seconds."""

    node: int
    started: float
    pod: str
    file: str


def agent_runs(folder: Path) -> list[AgentRun]:
    """All runs that have a copy, sorted by node and start.

    Raises:
        OSError: a folder exists but cannot be read.
    """
    if not folder.is_dir():
        return []
    files = (f"{node.name}/{path.name}" for node in folder.iterdir() if node.is_dir() for path in node.iterdir())
    found = filter(None, map(_FILE.fullmatch, files))
    runs = [AgentRun(node=int(one[1]), started=int(one[2]) / 1000, pod=one[3], file=one[0]) for one in found]
    return sorted(runs, key=lambda run: (run.node, run.started))


def lines(folder: Path, runs: Iterable[AgentRun]) -> Iterator[bytes]:
    """The lines of several runs, sorted by time."""
    return (line for _, line in heapq.merge(*(_timed(folder, run) for run in runs), key=lambda pair: pair[0]))


def _timed(folder: Path, run: AgentRun) -> Iterator[tuple[bytes, bytes]]:
    """Each line with its sort key. A line without a time was cut short; it takes the time of the line before."""
    time, node = b"", b"%d " % run.node
    with (folder / run.file).open("rb") as file:
        for line in file:
            time = line.partition(b" ")[0] if _TIMED.match(line) else time
            yield time, node + line.rstrip(b"\n") + b"\n"


def main() -> None:
    """List the runs, or print their lines."""
    if len(sys.argv) == 1:
        sys.exit("usage: python -m kittrain.helper.log_copies FOLDER [--list | FILE...]")
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    runs = agent_runs(folder)
    if wanted == ["--list"]:
        sys.stdout.buffer.writelines(json.dumps(asdict(run)).encode() + b"\n" for run in runs)
    else:
        sys.stdout.buffer.writelines(lines(folder, [run for run in runs if not wanted or run.file in wanted]))


if __name__ == "__main__":
    main()
