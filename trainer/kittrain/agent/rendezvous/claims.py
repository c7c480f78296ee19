"""Claims the right to go on with half of a round's nodes: a file that must not exist, in the folder that all share.

Why: decision 59.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kittrain.system import files


def claim(snapshots: Path, run_id: str, number: int, *, history: Path, nodes: Iterable[int]) -> bool:
    """Claim a round; False if another half has, or if the folder is not shown to be shared.

    Args:
        snapshots: folder of the run's snapshots.
        run_id: of the run.
        number: of the round.
        history: folder in which each node keeps its part of the run's history.
        nodes: of the round: the folder is shared if it has the histories of all.

    Raises:
        OSError: the folder cannot be read or written.
    """
    if not all((history / f"node-{node}").is_dir() for node in nodes):
        return False
    folder = snapshots / ".fence"
    files.make_folder(folder)
    try:
        files.write(folder / f"round-{number}-of-{run_id}", b"", exclusive=True)
    except FileExistsError:
        return False
    files.sync_folder(folder)
    return True
