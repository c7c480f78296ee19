"""A job's account, as it is printed."""

from __future__ import annotations

from typing import Final

import msgspec

LARGEST_ERROR: Final = 0.005  # of the elapsed node-seconds


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bucket."""

    part: str
    """What it is. Empty: the whole bucket has no parts."""
    cause: str = ""
    """Of a recovery or a hang: what ended the group before."""
    seconds: float
    """Node-seconds."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What node-seconds were spent on."""

    name: str
    """Its name."""
    seconds: float
    """Node-seconds."""
    share: float
    """Of all node-seconds, from 0 to 1."""
    parts: tuple[Share, ...] = ()
    """What it consists of, the longest first."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """What the node-seconds of a job were spent on since its submission."""

    name: str
    """Name of the job."""
    namespace: str
    """Its namespace."""
    nodes: int
    """Its nodes."""
    elapsed_seconds: float
    """Seconds since submission, until its end or now, by the clock of the API server or of the supervisor."""
    node_seconds: float
    """The same, times the nodes."""
    buckets: tuple[Bucket, ...]
    """All buckets; with ``unknownSeconds`` they add up to ``nodeSeconds``."""
    unknown_seconds: float
    """Node-seconds that no measurement covers."""
    overlap_seconds: float
    """Node-seconds that two measurements cover, of which the first counts: an error if it is more than rounding."""
    carried_seconds: float
    """Node-seconds after the last line of killed agents, which count as their last second did."""
    goodput: float
    """Training, divided by all node-seconds."""
    ettr: float
    """Effective training time ratio: steps that were not repeated, divided by all node-seconds."""
    ettr_since_admission: float
    """The same without the time in a queue."""
    repeated_steps: int
    """Steps that were taken again."""
    faults: int
    """Ends of groups by a fault."""
    clock_jump_seconds: float
    """Seconds by which the run's times contradict their order, as a clock was set: other numbers are wrong. 0: none."""

    @property
    def holds(self) -> bool:
        """Whether what is unknown, or measured twice, is within the error that is allowed, and no clock was set."""
        return not self.clock_jump_seconds and max(self.unknown_seconds, self.overlap_seconds) <= max(
            LARGEST_ERROR * self.node_seconds, 0.5
        )
