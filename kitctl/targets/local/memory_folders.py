"""Folders in this machine's memory, for ``snapshots.storage: memory``: each goes with its node, as a pod's does.

Each is reached by a link among the job's snapshots, so that nothing else has to know where it is.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/dev/shm")  # noqa: S108 - a file system in memory
PREFIX: Final = "kit-snapshots-"


def renew(link: Path) -> None:
    """Have a path lead to an empty folder in memory; what it led to is gone.

    Raises:
        OSError: there is no memory, or the link cannot be made.
    """
    remove(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists():  # the node's folder on disk, of an earlier job of that name
        link.rename(link.with_name(f"former-{uuid.uuid4().hex[:8]}"))
    link.symlink_to(tempfile.mkdtemp(prefix=PREFIX, dir=ROOT))


def remove(link: Path) -> None:
    """Remove such a link, and the folder; nothing else is touched."""
    with suppress(FileNotFoundError):  # a command that deletes the job, and its supervisor, may do so at once
        if link.is_symlink():
            target = link.readlink()
            if target.parent == ROOT and target.name.startswith(PREFIX):
                shutil.rmtree(target, ignore_errors=True)
            link.unlink()


def remove_all(folder: Path) -> None:
    """Remove those of all nodes of a job."""
    for link in folder.glob("*"):
        remove(link)
