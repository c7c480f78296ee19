"""A process that ends with the one that started it, however that one ends: even SIGKILL leaves no orphans."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER: Final = 36


def end_with(parent: int) -> None:
    """End with the parent, whose process id the caller knew before the parent could be gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the kernel took note
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def adopt_orphans() -> None:
    """Become the parent of whatever this process's children leave behind, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
