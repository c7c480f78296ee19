"""A private folder of this user in a place where others may write, too, such as ``/tmp``."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Create a folder that only this user can access, unless it exists.

    Raises:
        PermissionError: it is a link, belongs to another user, or others may write to it.
        OSError: it cannot be created.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "other users may have written to it: remove it", str(folder))
    return folder
