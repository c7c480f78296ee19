"""That training has finished, as a rank says it to its agent. Standard library only.

An exit code of 0 does not tell: many scripts save and end with it when they are told to leave.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "KIT_FINISHED_FILE"  # set by the agent for its own ranks


def mark_finished(environ: Mapping[str, str] = os.environ) -> None:
    """Say that training has finished: a SIGTERM that comes now, or has come, changes nothing about that.

    ``Training.fit()`` says so itself. Without an agent nobody is told. Scripts that do not import this package create
    the file that ``KIT_FINISHED_FILE`` names.

    Raises:
        OSError: the file cannot be written.
    """
    if name := environ.get(VARIABLE):
        Path(name).touch()
