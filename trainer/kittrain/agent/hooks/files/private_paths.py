"""Which files only this node has: those in its own working folder, unless on a volume or in a shared folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kitjob.variables import KIT_PRIVATE_FOLDER


def in_private_folder(path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> str:
    """The path of a file or folder relative to the node's own folder; empty if it is not in there, or none is known.

    Raises:
        OSError: its folder does not exist.
    """
    root = environ.get(KIT_PRIVATE_FOLDER)
    if not root:
        return ""
    folder, real = Path(root).resolve(), Path(os.path.realpath(path))
    if not real.is_relative_to(folder) or real.parent.stat().st_dev != folder.stat().st_dev:
        return ""
    return real.relative_to(folder).as_posix()
