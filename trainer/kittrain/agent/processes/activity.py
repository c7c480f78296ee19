"""Decides whether a rank without progress is busy, from its CPU and I/O usage. Pure: no clocks, no processes.

A rank that compiles, reads a slow disk or computes for long uses CPU or I/O. A stuck rank does not, nor does one that
waits in a gloo collective; one that waits in NCCL may use CPU.

Why: decision 26.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kittrain.system.processes import Usage

INTERVAL: Final = 1.0  # seconds between two samples
WINDOW: Final = 5.0  # seconds that are considered
MIN_CORES: Final = 0.05  # cores; an idle rank uses a tenth of that, watchdog threads perhaps half
MIN_IO_RATE: Final = 1 << 16  # bytes per second, far below any disk's speed


class Activity:
    """The activity of one rank. ``now`` is in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Usage]] = deque()

    def add(self, usage: Usage | None, now: float) -> None:
        """Add a sample; None, if usage is not available, clears them."""
        if usage is None:
            self._samples.clear()
            return
        self._samples.append((now, usage))
        while now > self._samples[0][0] + WINDOW + INTERVAL / 2:
            self._samples.popleft()

    @property
    def cores(self) -> float:
        """The number of cores in use; 0 with too few samples."""
        seconds = self._duration
        return (self._samples[-1][1].seconds - self._samples[0][1].seconds) / seconds if seconds else 0.0

    @property
    def busy(self) -> bool:
        """Whether it uses CPU or I/O, or was runnable in most samples without getting a CPU."""
        seconds = self._duration
        if not seconds:
            return False
        io_bytes = self._samples[-1][1].io_bytes - self._samples[0][1].io_bytes
        runnable = sum(usage.runnable for _, usage in self._samples) > len(self._samples) / 2
        return runnable or self.cores >= MIN_CORES or io_bytes >= MIN_IO_RATE * seconds

    @property
    def _duration(self) -> float:
        return self._samples[-1][0] - self._samples[0][0] if len(self._samples) > 1 else 0.0
