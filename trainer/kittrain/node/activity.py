"""Whether ranks that do not move work nevertheless, by what they use of the machine: the rules, without clocks.

A rank that compiles, reads a slow disk or computes for long uses processors or moves bytes. One that is stuck does
not, and nor does one that waits for others in gloo; in NCCL it may.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kittrain.system.processes import Usage

INTERVAL: Final = 1.0  # seconds between two samples
WINDOW: Final = 5.0  # seconds that count
LEAST: Final = 0.05  # of a core: a rank that waits takes a tenth of that, what watches over it perhaps a half
FLOW: Final = 1 << 16  # bytes in a second, far below any disk's


class Activity:
    """Of one rank. ``now`` is in seconds of any steady clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Usage]] = deque()

    def note(self, usage: Usage | None, now: float) -> None:
        """A sample; None if there is nothing to see."""
        if usage is None:
            self._samples.clear()
            return
        self._samples.append((now, usage))
        while now > self._samples[0][0] + WINDOW + INTERVAL / 2:
            self._samples.popleft()

    @property
    def cores(self) -> float:
        """How many cores it uses; 0 where too little was seen."""
        seconds = self._passed
        return (self._samples[-1][1].seconds - self._samples[0][1].seconds) / seconds if seconds else 0.0

    @property
    def busy(self) -> bool:
        """Whether it works: it uses a processor, moves bytes, or most of the time wanted to and did not get there."""
        seconds = self._passed
        if not seconds:
            return False
        moved = self._samples[-1][1].moved - self._samples[0][1].moved
        wanting = sum(usage.wanting for _, usage in self._samples) > len(self._samples) / 2
        return wanting or self.cores >= LEAST or moved >= FLOW * seconds

    @property
    def _passed(self) -> float:
        return self._samples[-1][0] - self._samples[0][0] if len(self._samples) > 1 else 0.0
