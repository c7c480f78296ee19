"""The buckets of node-seconds, and an interval of a node that counts as some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

BUCKETS: Final[Mapping[str, str]] = {
    "queue": "waits for quota in a queue",
    "placement": "waits for a place: scheduling, and on this machine the supervisor",
    "image and code": "the image is pulled, code is unpacked, packages are installed",
    "start and join": "agents and ranks start, import, and form their process group",
    "restore": "a snapshot is read, at a first start",
    "training": "steps: forward, backward, update, exchange",
    "data wait": "the loop waits for its data",
    "evaluation": "evaluation, between steps",
    "snapshot stall": "training waits for a snapshot",
    "waiting for a peer": "this node is ready, and another one is not",
    "spare": "this node stands by, to take the place of a lost one",
    "repeated steps": "steps that had been taken before",
    "recovery": "from a fault to the next step",
    "idle after a hang": "no rank moves, until that is recognized, or a collective times out",
    "drained": "stopped as requested: suspended, preempted, scaled down",
    "ended": "this node has ended, or its script's training; the job has not",
}
UNKNOWN: Final = "unknown"

Kind = tuple[str, str, str]  # bucket, cause, part


class Span(NamedTuple):
    """An interval of a node, and what its seconds were spent on, in proportion."""

    start: float
    end: float
    kinds: Mapping[Kind, float]
