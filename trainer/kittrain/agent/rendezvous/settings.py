"""The rendezvous' timeouts, under the names that torchrun uses for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from kitjob.names import LOST_AFTER
from kittrain.job.variables import EnvError

MAX_ATTEMPTS: Final = 127  # of Linux
KERNEL_RESERVE: Final = 30  # seconds until the kernel gives up an idle connection, after an agent would


@dataclass(frozen=True, kw_only=True)
class RendezvousSettings:
    """Timeouts in seconds, under torchrun's names; torchrun alone reads the other keys of PET_RDZV_CONF."""

    join_timeout: int = 900  # how long a node waits for the others
    last_call_timeout: int = 3  # how long an elastic job waits for more nodes once it has its minimum
    keep_alive_interval: int = 1
    keep_alive_max_attempt: int = 5  # a node that misses this many keep-alives is lost
    read_timeout: int = 15  # longest single operation on the store
    lost_after: int = 3  # `policy.lostAfter`: without an answer for so long, a machine is lost

    @property
    def keep_alive_timeout(self) -> int:
        """Seconds after which an unresponsive kernel counts as gone; also the interval of an agent's heartbeats."""
        return self.keep_alive_interval * self.keep_alive_max_attempt

    @property
    def keep_alive(self) -> tuple[int, int]:
        """Seconds between two of the kernel's keep-alives, and how many may be missed: agents decide before it does."""
        seconds = self.lost_after + KERNEL_RESERVE
        interval = max(self.keep_alive_interval, math.ceil(seconds / MAX_ATTEMPTS))
        return interval, max(self.keep_alive_max_attempt, math.ceil(seconds / interval))

    @classmethod
    def from_conf(cls, conf: Mapping[str, str], *, lost_after: int = lost_after) -> RendezvousSettings:
        """Parse ``PET_RDZV_CONF``; ``lost_after`` is the job's.

        Raises:
            EnvError: a timeout is not a positive whole number of seconds, or ``lost_after`` is out of bounds.
        """
        least, most = LOST_AFTER
        if not least <= lost_after <= most:
            raise EnvError(f"policy.lostAfter: {lost_after} s is not between {least} and {most} s")
        names = {field.name for field in fields(cls)} - {"lost_after"}
        given = {name: text for name, text in conf.items() if name in names}
        for name, text in given.items():
            if not text.isdecimal() or int(text) == 0:
                raise EnvError(f"PET_RDZV_CONF: {name}={text!r} is not a positive number of seconds")
        return cls(**{name: int(text) for name, text in given.items()}, lost_after=lost_after)
