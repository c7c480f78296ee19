"""The mark that a run leaves beside its snapshots when it has finished: a node that comes back then has nothing to do.

Standard library only: the agent looks for the mark before it imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kittrain.system.files import replace


def path(snapshot_dir: Path, run_id: str) -> Path:
    """Where the mark of a run is."""
    return snapshot_dir / f".finished-{run_id}"


def finished(snapshot_dir: Path | None, run_id: str) -> bool:
    """Whether the run has finished; without a folder of snapshots nobody knows.

    Raises:
        OSError: whether the mark is there cannot be told at the moment.
    """
    if snapshot_dir is None:
        return False
    try:
        path(snapshot_dir, run_id).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def seen_finished(snapshot_dir: Path | None, run_id: str) -> bool:
    """As ``finished``, for who looks again and again: what cannot be told now is not so yet."""
    try:
        return finished(snapshot_dir, run_id)
    except OSError:
        return False


def mark(snapshot_dir: Path, run_id: str, facts: Mapping[str, object]) -> None:
    """Mark the run as finished; the facts are for whoever reads the mark, as JSON.

    Raises:
        OSError: the mark could not be written.
    """
    replace(path(snapshot_dir, run_id), json.dumps({"run": run_id, **facts}).encode())
