"""What the seconds of a rank's phases count as: the buckets of the account (``kitctl goodput``) and of the metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

TRAINING: Final = "training"
DATA_WAIT: Final = "data wait"
RECOVERY: Final = "recovery"
IDLE: Final = "idle after a hang"
REPEATED: Final = "repeated steps"
STARTING: Final = "start and join"
WAITING: Final = "waiting for a peer"
CODE: Final = "image and code"
ENDED: Final = "ended"

PHASES: Final[Mapping[str, str]] = {
    "STARTING": STARTING,
    "JOINING": STARTING,
    "PREPARING": STARTING,
    "RESTORING": "restore",
    "DATA": DATA_WAIT,
    "FORWARD": TRAINING,
    "BACKWARD": TRAINING,
    "UPDATING": TRAINING,
    "COMPUTING": TRAINING,
    "SYNCING": TRAINING,
    "SCRIPT": TRAINING,
    "EVALUATING": "evaluation",
    "SAVING": "snapshot stall",
    "FINISHING": ENDED,
}
BEFORE_STEPS: Final = frozenset({"STARTING", "JOINING", "PREPARING", "RESTORING"})  # phases before the first step
IN_STEPS: Final = (TRAINING, DATA_WAIT)
# A collective, of gloo, of NCCL, and of another node's ranks as their agent tells it.
TIMED_OUT: Final = re.compile(r"Timed out waiting (\d+)ms|Timeout\(ms\)=(\d+)|timed out after (\d+) ms in a collective")


def timed_out(cause: str) -> float | None:
    """The seconds that a rank had waited in a collective when that timed out; None: no such cause."""
    found = TIMED_OUT.search(cause)
    return int(next(filter(None, found.groups()))) / 1000 if found else None
