"""Whether a folder's disk takes what is written: full or read-only ones are waited for, as snapshots may fill them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # errors that end once there is room
LEAST: Final = 64 << 10  # bytes: of a few small files


def trouble(folder: Path) -> str:
    """Why nothing can be written there, ``no room is left on the disk of ...``; empty as far as that is known.

    A quota is not known.
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return ""
    if found.f_flag & os.ST_RDONLY:
        return f"the disk of {folder} is read-only"
    root = os.geteuid() == 0  # who may use what is kept for them
    blocks, inodes = (found.f_bfree, found.f_ffree) if root else (found.f_bavail, found.f_favail)
    # A file system that counts none, as some of networks and of user space, is not full.
    full = (found.f_blocks and blocks * found.f_frsize < LEAST) or (found.f_files and not inodes)
    return f"no room is left on the disk of {folder}" if full else ""
