"""Takes as many steps as its argument says. On SIGTERM it saves its step and exits with 0, without the library."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

folder = Path(os.environ["KIT_SNAPSHOT_DIR"])
saved, steps = folder / f"saved-{os.environ['RANK']}", folder / f"steps-{os.environ['RANK']}"
stopping: list[bool] = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
start = int(saved.read_text()) if saved.exists() else 0
for step in range(start, int(sys.argv[1])):
    time.sleep(0.1)
    with steps.open("a") as file:
        file.write(f"{step}\n")
    if stopping:
        saved.write_text(str(step + 1))
        sys.exit(0)
