"""Whether an agent that has ended is started again in its pod, and when. Pure, standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kittrain.outcome.failures import NO_SNAPSHOT

MAX_RESTARTS: Final = 10  # without progress; then the pod ends, and its controller decides
FIRST_DELAY: Final = 0.1  # seconds before the second restart without progress; the first one comes at once
MAX_DELAY: Final = 1.0  # seconds
LONG_LIFE: Final = 3600.0  # seconds; ends that are so far apart are no crash loop
GIVE_UP_AFTER: Final = (
    300.0  # seconds; an agent that gave up this late waited for something that another machine may have
)


@dataclass
class RestartBudget:
    """How often an agent may be started again in its pod. A new snapshot between two of its ends resets the count.

    Args:
        newest: the newest snapshot when the agent first started, as ``newest_snapshot`` returns it.
    """

    newest: tuple[int, int] | None
    count: int = field(default=0, init=False)  # since the last progress
    total: int = field(default=0, init=False)

    def charge(self, newest: tuple[int, int] | None, *, lived: float, gave_up: bool) -> float | None:
        """Count an end; returns the seconds until the next start, or None if the pod has to end.

        Args:
            newest: the newest snapshot now; None if the storage does not answer.
            lived: seconds from the agent's start to its end.
            gave_up: it ended by itself, retryably; it was neither killed nor did it crash.
        """
        before = self.newest or NO_SNAPSHOT
        self.newest = max(newest or NO_SNAPSHOT, before)
        advanced = self.newest > before
        if advanced or (lived >= LONG_LIFE and not gave_up):
            self.count = 0
        if self.count >= MAX_RESTARTS or (gave_up and lived >= GIVE_UP_AFTER and not advanced):
            return None
        self.count += 1
        self.total += 1
        return 0.0 if self.count == 1 else min(FIRST_DELAY * 2 ** (self.count - 2), MAX_DELAY)
