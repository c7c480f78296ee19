"""Rank failures: which one explains the others, and how often a node may restart its ranks. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kittrain.env import WORKER_DRAINED
from kittrain.outcome.causes import Cause, Kind, cause_of

# Of several failures at once the one of the earliest kind is the cause. A rank that the agent stopped because another
# one failed explains nothing.
PRECEDENCE: Final[tuple[Kind, ...]] = ("own", "hang", "drained", "storage", "peer", "stopped")
BRIEF: Final = 100  # characters of an error within a sentence; the whole error is reported separately
SIGTERM_EXIT: Final = -15
SNAPSHOT: Final = re.compile(r"step-(\d+)-g(\d+)")  # folder of a published snapshot (kittrain.snapshots.snapshot)
NO_SNAPSHOT: Final = (0, 0)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How one rank ended.

    Attributes:
        rank: which one.
        exit_code: of its process; negative if a signal killed it.
        error: ``ValueError: message``, or how the process ended if it could not write its error.
        traceback: of the error, or where Python was when a signal arrived; may be empty.
        lines: of its output, the last ones, oldest first.
        time: Unix seconds.
    """

    rank: int
    exit_code: int
    error: str
    traceback: str = ""
    lines: tuple[str, ...] = ()
    time: int

    @property
    def brief(self) -> str:
        """The error in one short line, without gloo's source location and its guess of a typical cause."""
        line = re.sub(r"\[/[^\]]*\] |\. This is typically caused by .*", "", self.error.partition("\n")[0])
        return line if len(line) <= BRIEF else f"{line[: BRIEF - 1]}…"

    @property
    def cause(self) -> Cause:
        """The matching row of the table of causes."""
        return cause_of(self.error, self.lines)

    @property
    def kind(self) -> Kind:
        """Whose fault it is."""
        if self.exit_code == WORKER_DRAINED:
            return "drained"
        return "stopped" if self.exit_code == SIGTERM_EXIT else self.cause.kind


def root_cause(failures: Iterable[Failure]) -> Failure:
    """The failure that explains the others (times have whole seconds, so the kind decides first)."""
    return min(failures, key=lambda failure: (PRECEDENCE.index(failure.kind), failure.time, failure.rank))


def newest_snapshot(snapshot_dir: Path | None) -> tuple[int, int] | None:
    """Generation and step of the newest published snapshot, or :data:`NO_SNAPSHOT`; None if the folder is unreadable.

    The generation counts first: an earlier run, or another order of the data, may have reached a higher step.
    """
    try:
        names = [entry.name for entry in snapshot_dir.iterdir()] if snapshot_dir else []
    except (FileNotFoundError, NotADirectoryError):
        return NO_SNAPSHOT
    except OSError:
        return None
    found = ((int(match[2]), int(match[1])) for name in names if (match := SNAPSHOT.fullmatch(name)))
    return max(found, default=NO_SNAPSHOT)


@dataclass(kw_only=True)
class Budget:
    """How often a node may restart its ranks. A newer snapshot between two failures resets all counts.

    Failures that are not the script's fault (lost peers, storage that does not respond) are counted separately. So is
    any failure while the storage does not respond, since there may be a newer snapshot. A hang counts as a failure only
    when it repeats at the same step: a rank that was merely slow does not hang there twice.
    """

    max_restarts: int
    max_peer_failures: int = 100  # not the node's fault, but a network that stays broken must end the job, too
    snapshot_dir: Path | None = None
    own: int = field(default=0, init=False)
    peer: int = field(default=0, init=False)
    storage: int = field(default=0, init=False)
    hangs: int = field(default=0, init=False)
    repeated: int = field(default=0, init=False)  # hangs at the same step, after the first
    _hung: int | None = field(default=None, init=False)  # steps that were finished at the last hang
    _newest: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._newest = newest_snapshot(self.snapshot_dir) or NO_SNAPSHOT

    def charge(self, kind: Kind, *, step: int | None = None) -> bool:
        """Count a failure (a hang with the finished steps); returns whether the ranks may be restarted."""
        newest = newest_snapshot(self.snapshot_dir)
        if newest and newest > self._newest:
            self.own = self.peer = self.storage = self.hangs = self.repeated = 0
            self._newest, self._hung = newest, None
        if kind == "peer":
            self.peer += 1
        elif kind == "storage" or (newest is None and kind != "drained"):
            self.storage += 1
        elif kind == "hang":
            self.hangs += 1
            self.repeated = self.repeated + 1 if step == self._hung else 0
            self._hung = step
        elif kind != "drained":
            self.own += 1
        charged, others = max(self.own, self.repeated), max(self.peer, self.storage, self.hangs)
        return charged <= self.max_restarts and others <= self.max_peer_failures
