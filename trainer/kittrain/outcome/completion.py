"""Lets a rank report to its agent that training has finished. Standard library only.

An exit code of 0 does not prove it: many scripts save and exit with 0 on SIGTERM.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kitjob.variables import KIT_FINISHED_FILE


def mark_finished(environ: Mapping[str, str] = os.environ) -> None:
    """Report that training has finished, even if a SIGTERM has arrived or arrives now.

    ``Training.fit()`` calls it. Without an agent it does nothing. Scripts that do not import this package can create
    the file named by ``KIT_FINISHED_FILE`` instead.

    Raises:
        OSError: the file cannot be written.
    """
    if name := environ.get(KIT_FINISHED_FILE):
        Path(name).touch()
