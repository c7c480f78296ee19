"""The marker file next to a finished run's snapshots: a node that restarts finds it and has nothing to do.

Standard library only: the agent checks it before it imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kittrain.system.files import replace


def path(snapshot_dir: Path, run_id: str) -> Path:
    """Path of a run's marker."""
    return snapshot_dir / f".finished-{run_id}"


def finished(snapshot_dir: Path | None, run_id: str) -> bool:
    """Whether the run has finished; False without a snapshot folder.

    Raises:
        OSError: the folder cannot be read now.
    """
    if snapshot_dir is None:
        return False
    try:
        path(snapshot_dir, run_id).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def seen_finished(snapshot_dir: Path | None, run_id: str) -> bool:
    """As ``finished``, for callers that poll: False if the folder cannot be read now."""
    try:
        return finished(snapshot_dir, run_id)
    except OSError:
        return False


def last_step(snapshot_dir: Path, run_id: str) -> int | None:
    """The last step of a finished run; None where its marker does not say, or cannot be read."""
    try:
        step = json.loads(path(snapshot_dir, run_id).read_bytes())["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


def mark(snapshot_dir: Path, run_id: str, facts: Mapping[str, object]) -> None:
    """Mark the run as finished; the facts are stored in the marker as JSON, for information.

    Raises:
        OSError: the marker cannot be written.
    """
    replace(path(snapshot_dir, run_id), json.dumps({"run": run_id, **facts}).encode())
