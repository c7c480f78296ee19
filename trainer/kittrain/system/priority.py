"""Lets a process that works beside the ranks take only the processor time that training leaves."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

AUTOGROUP: Final = Path("/proc/self/autogroup")


def yield_to_training(nice: int) -> None:
    """Lower this process's priority; ``nice``: from 1 to 19.

    Outside of containers, Linux divides processors among sessions first, and nice values count within one only:
    ranks have sessions of their own, so this process leaves theirs, and lowers its session as well (sched(7)).
    """
    os.nice(nice)
    with suppress(OSError):  # it leads a group of processes, or the kernel does not divide by sessions
        os.setsid()
        AUTOGROUP.write_text(str(nice), encoding="utf-8")
