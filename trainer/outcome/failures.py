"""Why ranks fail, and how often a node may try again: a table, a choice and a budget; standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from trainer.env import WORKER_DRAINED

Kind = Literal["own", "hang", "drained", "peer", "stopped"]

# What the error of a rank tells about whose fault it is: the first row that matches decides, no match is the rank's
# own. Exception types by torch's names; texts as gloo, NCCL, TCPStore and the kernel word them.
CAUSES: Final[tuple[tuple[str, Kind], ...]] = (
    (r"^hang: ", "hang"),  # as the hub words it
    # Wrong calls and full devices come wrapped in the same types as a lost peer, and will fail again.
    (r"ncclInvalid(Usage|Argument)|ncclUnhandledCudaError|No space left on device", "own"),
    # Any other error of the process group or its store: the rank cannot know more than that the others are gone.
    (r"^(torch\.distributed\.)?Dist(Backend|Network|Store|)Error\b", "peer"),
    (r"^(ConnectionError|ConnectionResetError|ConnectionRefusedError|BrokenPipeError)\b", "peer"),
    (r"Connection (closed by peer|reset|refused)|Broken pipe|Socket (closed|Timeout)", "peer"),
    (r"[Gg]loo.*(Timed out|timeout|Read error|Write error|connectFullMesh|Try again)", "peer"),
    (r"Timed out waiting \d+ms for (recv|send|unbound)|Application timeout caused pair closure", "peer"),
    (r"ncclRemoteError|ncclSystemError|NCCL communicator was aborted", "peer"),
    (r"wait timeout after \d+ms|Timed out after \d+ seconds waiting for clients", "peer"),
)
# Which of several failures at once is told as the cause: the earlier row. A rank that the agent itself stopped
# because another one failed explains nothing.
PRECEDENCE: Final[tuple[Kind, ...]] = ("own", "hang", "drained", "peer", "stopped")
BRIEF: Final = 100  # characters of an error in a sentence; all of it is told beside
SIGTERM_EXIT: Final = -15
SNAPSHOT: Final = re.compile(
    r"step-(\d+)-g\d+"
)  # a published snapshot's folder, as trainer.snapshots.snapshot names it


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How one rank ended."""

    rank: int
    exit_code: int  # negative: killed by that signal
    error: str  # "ValueError: message", or how the process ended if it could not tell
    traceback: str = ""
    time: int  # unix seconds

    @property
    def brief(self) -> str:
        """The error in one short line, without gloo's own place in its source, and its guess at what is typical."""
        line = re.sub(r"\[/[^\]]*\] |\. This is typically caused by .*", "", self.error.partition("\n")[0])
        return line if len(line) <= BRIEF else f"{line[: BRIEF - 1]}…"

    @property
    def kind(self) -> Kind:
        """Whose fault it is."""
        return classify(self.exit_code, self.error)


def classify(exit_code: int, error: str) -> Kind:
    """Decide by :data:`CAUSES` whose fault a rank's end is; never called for exit code 0."""
    if exit_code == WORKER_DRAINED:
        return "drained"
    if exit_code == SIGTERM_EXIT:
        return "stopped"
    return next((kind for pattern, kind in CAUSES if re.search(pattern, error, re.DOTALL)), "own")


def root_cause(failures: Iterable[Failure]) -> Failure:
    """The failure that explains the others (times have whole seconds, so the kind decides first)."""
    return min(failures, key=lambda failure: (PRECEDENCE.index(failure.kind), failure.time, failure.rank))


def newest_step(snapshot_dir: Path | None) -> int:
    """Step of the newest published snapshot, -1 where there is none."""
    if snapshot_dir is None or not snapshot_dir.is_dir():
        return -1
    found = (SNAPSHOT.fullmatch(entry.name) for entry in snapshot_dir.iterdir())
    return max((int(match[1]) for match in found if match), default=-1)


@dataclass(kw_only=True)
class Budget:
    """How often a node may start its ranks again. A newer snapshot between two failures wipes the slate."""

    max_restarts: int
    max_peer_failures: int = 100  # not the node's fault, but a network that never heals must end too
    snapshot_dir: Path | None = None
    own: int = field(default=0, init=False)
    peer: int = field(default=0, init=False)
    _step: int = field(init=False)

    def __post_init__(self) -> None:
        self._step = newest_step(self.snapshot_dir)

    def charge(self, kind: Kind) -> bool:
        """Charge a failure; whether the ranks may be started again."""
        step = newest_step(self.snapshot_dir)
        if step > self._step:
            self.own = self.peer = 0
            self._step = step
        if kind == "peer":
            self.peer += 1
        elif kind != "drained":
            self.own += 1
        return self.own <= self.max_restarts and self.peer <= self.max_peer_failures
