"""A rank that ends its node's agent as its argument says, at the first attempt; then it succeeds.

``always-retryable`` never succeeds.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

outcome = sys.argv[1]
attempts = Path(os.environ["KIT_SNAPSHOT_DIR"]) / "attempts"
first = not attempts.exists()
with attempts.open("a") as file:
    file.write(f"{outcome}\n")

match outcome if first or outcome.startswith("always") else "done":
    case "drained":
        os.kill(1, signal.SIGTERM)  # to the container's init, as the kubelet does it
        signal.pause()
    case "retryable" | "always-retryable":  # something is wrong with the node, not with the program
        for scratch in Path("/tmp").glob("kit-agent-*"):
            shutil.rmtree(scratch)
        sys.exit("the agent cannot start ranks again")
    case "fatal":
        sys.exit("this never goes well")
