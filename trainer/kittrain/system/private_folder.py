"""A folder of this user's in a place where others may write, too, such as ``/tmp``."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Create a folder that only this user may enter, unless it is there.

    Raises:
        PermissionError: it is a link, another user's, or others may write to it: what is in it may be anybody's.
        OSError: it cannot be created.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "other users may have written to it: remove it", str(folder))
    return folder
