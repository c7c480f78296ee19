"""A folder of packages on the import path of Python processes: this one's, and those that get an environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "PYTHONPATH"


def with_packages(environ: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """An environment with the folder on Python's path, after what is given there, and its programs on ``PATH``."""
    if folder is None:
        return dict(environ)
    path = os.pathsep.join(filter(None, (environ.get(VARIABLE), str(folder))))
    programs = os.pathsep.join(filter(None, (str(folder / "bin"), environ.get("PATH"))))
    return {**environ, VARIABLE: path, "PATH": programs}


def add_packages(folder: Path, environ: Mapping[str, str]) -> None:
    """Put the folder on this process's path where an interpreter that starts in ``environ`` would have it."""
    given = environ.get(VARIABLE, "").split(os.pathsep)
    last = max((place for place, entry in enumerate(sys.path) if entry in given), default=-1)
    sys.path.insert(last + 1, str(folder))
