"""Where a script has ended its rank with exit code 0 from within, by ``sys.exit()``, for those whom it has left."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kittrain.agent.rendezvous.stacks import LIBRARY

MODULE: Final = "<module>"  # there a script ends in the usual way


def note(end: SystemExit, environ: Mapping[str, str] = os.environ) -> None:
    """Note the line of a function of the script's that has raised it, if one has."""
    frame = (traceback.extract_tb(end.__traceback__) or [None])[-1]
    file = environ.get("KIT_HEARTBEAT_FILE")
    if not (frame and file) or frame.name == MODULE or frame.filename.startswith("<"):
        return
    if not LIBRARY.search(frame.filename):
        with suppress(OSError):
            _file(Path(file), os.getpid()).write_text(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}")


def place(heartbeat: Path, pid: int) -> str:
    """What a rank has noted, of its heartbeat and process; empty if it has not."""
    with suppress(OSError, UnicodeError):
        return _file(heartbeat, pid).read_text()
    return ""


def _file(heartbeat: Path, pid: int) -> Path:
    return Path(f"{heartbeat}.exit-{pid}")
