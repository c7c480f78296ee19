"""A rank's heartbeat: its current phase, in a memory-mapped file that its agent reads.

A beat costs about a microsecond and no system call. There is no lock: the agent reads again soon, and compares the
number of beats instead of clocks. Standard library only.
"""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Self


class Phase(IntEnum):
    """What a rank is doing, in chronological order; a training step is DATA to SYNCING."""

    STARTING = 0  # no beat yet; without the library there never is one
    JOINING = 1
    PREPARING = 2  # the script's own code before training
    RESTORING = 3
    DATA = 4
    FORWARD = 5
    BACKWARD = 6  # includes the gradients' all-reduce
    UPDATING = 7
    COMPUTING = 8  # a loop of the script's own: FORWARD to UPDATING, indistinguishable from outside
    SYNCING = 9  # exchanges the loss and the decision to stop with the other ranks
    EVALUATING = 10
    SAVING = 11
    FINISHING = 12  # the script's own code after training


STEP: Final = range(Phase.DATA, Phase.SYNCING + 1)
BUSY: Final = frozenset({Phase.DATA, Phase.FORWARD, Phase.UPDATING})  # the rank does not wait for others

_IS_BUSY: Final = tuple(phase in BUSY for phase in Phase)  # hashing an enum member is slow

_NOW: Final = struct.Struct("<QQQd")  # beats, finished steps, phase, busy seconds
_FIRST: Final = struct.Struct(f"<{len(Phase)}d")  # time.monotonic() when each phase first began; 0: not yet
SIZE: Final = _NOW.size + _FIRST.size


class HeartbeatWriter:
    """The rank's side. Without a file (no agent) it does nothing."""

    def __init__(self, file: Path | None = None) -> None:
        self._page: mmap.mmap | None = None
        if file is not None:
            with file.open("r+b") as opened:
                self._page = mmap.mmap(opened.fileno(), SIZE)
        self._beats = self._step = 0
        self._phase = Phase.STARTING
        self._since = time.monotonic()
        self._busy = 0.0
        self._first = [0.0] * len(Phase)

    def beat(self, phase: Phase, *, step: int | None = None) -> None:
        """Enter a phase; ``step`` is the number of finished steps, if it changed."""
        if self._page is None:
            return
        now = time.monotonic()
        if _IS_BUSY[self._phase]:
            self._busy += now - self._since
        if step is not None:
            self._step = step
        self._phase, self._since = phase, now
        self._beats += 1
        _NOW.pack_into(self._page, 0, self._beats, self._step, phase, self._busy)
        if not self._first[phase]:
            self._first[phase] = now
            _FIRST.pack_into(self._page, _NOW.size, *self._first)


@dataclass(frozen=True, kw_only=True)
class HeartbeatState:
    """The agent's side: the content of the file at one moment."""

    beats: int
    step: int
    phase: Phase
    busy: float
    first: tuple[float, ...]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a rank's file.

        Raises:
            OSError: it is gone.
        """
        page = file.read_bytes()
        beats, step, phase, busy = _NOW.unpack_from(page)
        return cls(beats=beats, step=step, phase=Phase(phase), busy=busy, first=_FIRST.unpack_from(page, _NOW.size))


def prepare(file: Path) -> Path:
    """Create the file of a rank that is about to start."""
    file.write_bytes(bytes(SIZE))
    return file
