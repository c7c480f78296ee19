"""The agent's temporary folder, for pipes and files shared with its ranks; removed by this or a later agent."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kittrain.system.folder_locks import lock, remove_unused, unlock

PREFIX: Final = "kit-agent-"
UNUSED: Final = 60.0  # seconds; a younger folder may still be in creation


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create the folder, after removing those that killed agents left behind."""
    remove_unused(Path(tempfile.gettempdir()), PREFIX, unused=UNUSED)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # not a TemporaryDirectory: an exiting rank would remove it
    owner = None
    with suppress(OSError):  # no locks on this file system: then it stays after a kill
        owner = lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if owner is not None:
            unlock(owner)
