"""The folder of an agent's own, for pipes and what its ranks tell it: it ends with the agent, or with a later one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kittrain.system.claims import claim, clear, release

PREFIX: Final = "kit-agent-"
UNUSED: Final = 60.0  # seconds after which nobody is just making one


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder. What agents have left that were killed is cleared away first."""
    clear(Path(tempfile.gettempdir()), PREFIX, unused=UNUSED)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # a TemporaryDirectory would end with the first rank, too
    owner = None
    with suppress(OSError):  # a file system without locks: it stays if this agent is killed
        owner = claim(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if owner is not None:
            release(owner)
