"""Rank failures: which one explains the others, and how often a node may restart its ranks. Standard library only.

Why: decision 19.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kitjob.report import VALUES
from kittrain.job.env import WORKER_DRAINED
from kittrain.outcome.causes import Cause, Kind, cause_of

# Of several failures at once the one of the earliest kind is the cause. A rank that the agent stopped because another
# one failed explains nothing.
PRECEDENCE: Final[tuple[Kind, ...]] = ("own", "left", "hang", "drained", "storage", "peer", "stopped")
BRIEF: Final = 100  # characters of an error within a sentence; the whole error is reported separately
SIGTERM_EXIT: Final = -15
SIGKILL_EXIT: Final = -9
LONG_PATH: Final = re.compile(r"(?<![\w/.])(?:/[^/\s:'\"]+){2,}((?:/[^/\s:'\"]+){2})")  # all but its last two parts
TIMED_OUT: Final = re.compile(r"[Tt]imed out|[Tt]imeout")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+\b")  # of an object
_VARIES: Final = re.compile(rf"{_ADDRESS.pattern}|\d+")
KILLED: Final = "killed by SIGKILL"  # an error without a known cause
SNAPSHOT: Final = re.compile(
    r"step-(\d+)-g(\d+)"
)  # folder of a published snapshot (kittrain.rank.snapshots.folder.snapshot)
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
        elsewhere: where another rank was as it lost this one, if that explains the error; empty: unknown.
    """

    rank: int
    exit_code: int
    error: str
    traceback: str = ""
    lines: tuple[str, ...] = ()
    time: int
    elsewhere: str = ""

    @property
    def brief(self) -> str:
        """The error in one short line, without gloo's source location and its guess of a typical cause."""
        line = re.sub(r"\[/[^\]]*\] |\. This is typically caused by .*", "", self.error.partition("\n")[0])
        if len(line) > BRIEF:  # a path must not push out what comes after it
            line = LONG_PATH.sub(r"…\1", line)
        return line if len(line) <= BRIEF else f"{line[: BRIEF - 1]}…"

    @property
    def cause(self) -> Cause:
        """The matching row of the table of causes."""
        return cause_of(self.error, self.lines, self.traceback)

    @property
    def signature(self) -> tuple[str, str]:
        """Error and traceback without times and addresses, and without values of that moment: the same each time."""
        return _VARIES.sub("", self.error), _ADDRESS.sub("", self.traceback.partition(f"\n{VALUES}")[0])

    @property
    def kind(self) -> Kind:
        """Whose fault it is."""
        if self.exit_code == WORKER_DRAINED:
            return "drained"
        return "stopped" if self.exit_code == SIGTERM_EXIT else self.cause.kind


def is_hopeless(failure: Failure, before: Failure | None) -> bool:
    """Whether no restart can help.

    Args:
        failure: the root cause of this round's failure.
        before: that of the round before, if it failed.
    """
    if failure.cause.permanent:
        return True
    return before is not None and failure.cause.deterministic and _is_same(failure, before)


def waits_in_vain(failure: Failure, before: Failure | None) -> bool:
    """Whether a rank timed out where it did in the round before: the others are there, and do not come."""
    timed_out = failure.kind == "peer" and TIMED_OUT.search(failure.error)
    return before is not None and bool(timed_out) and _is_same(failure, before)


def _is_same(failure: Failure, before: Failure) -> bool:
    return failure.signature == before.signature


def lacks_file(failure: Failure, sent: Path) -> bool:
    """Whether the failure is that a file is not in the folder that was sent with the job, where none appears by itself.

    Not if it is there by now: another rank may have written it. Elsewhere, a volume may be mounted late.
    """
    found = re.fullmatch(r"FileNotFoundError: \[Errno 2\] No such file or directory: '([^'\0]+)'", failure.error)
    if not found:
        return False
    path = Path(os.path.normpath(sent / found[1]))
    return path.is_relative_to(sent) and not path.exists()


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


@dataclass(frozen=True, kw_only=True)
class ScriptRound:
    """What is known of a round of a script with a loop of its own, at its failure.

    Attributes:
        steps: optimizer steps that its ranks have taken.
        loaded: when the newest file that it loaded before its second step was last changed, in nanoseconds; 0: none.
        error: of the rank that failed; empty if it was killed from outside.
    """

    steps: int = 0
    loaded: int = 0
    error: str = ""

    def is_further_than(self, before: ScriptRound) -> bool:
        """Whether the script has made progress since an earlier failure: it loaded a newer file at its start.

        The same error after the same number of steps is no progress: some scripts repeat, and save again, the last part
        of what they have saved.
        """
        repeated = self.error and (self.error, self.steps) == (before.error, before.steps)
        return self.loaded > before.loaded and not repeated


def script_round(cause: Failure, *, steps: int, loaded: int) -> ScriptRound | None:
    """The round that ended with this failure; None if no loop of the script's own took a step in it."""
    if not steps:
        return None
    killed = cause.error == KILLED  # if memory was short, more follows
    timeless = cause.kind in {"hang", "left"}  # their texts have times
    error = cause.kind if timeless else cause.error
    return ScriptRound(steps=steps, loaded=loaded, error="" if killed else error)


@dataclass(kw_only=True)
class Budget:
    """How often a node may restart its ranks. A newer snapshot between two failures resets all counts.

    So does a newer checkpoint of a script's own (``ScriptRound``), but only for ``max_script_failures`` in all: whether
    the script has come further is a guess.

    Failures that are not the script's fault (lost peers, storage that does not respond) are counted separately. So is
    any failure while the storage does not respond, since there may be a newer snapshot. A hang counts as a failure only
    when it repeats at the same step: a rank that was merely slow does not hang there twice. So does a time-out of a
    collective for which the others do not come, without a step in between.
    """

    max_restarts: int
    max_peer_failures: int = 100  # not the node's fault, but a network that stays broken must end the job, too
    max_script_failures: int = 100
    snapshot_dir: Path | None = None
    own: int = field(default=0, init=False)
    peer: int = field(default=0, init=False)
    storage: int = field(default=0, init=False)
    hangs: int = field(default=0, init=False)
    repeated: int = field(default=0, init=False)  # hangs at the same step, after the first
    waited: int = field(default=0, init=False)  # time-outs at the same place without a step in between, after the first
    all_own: int = field(default=0, init=False)  # whatever the script has saved in between
    _script: ScriptRound = field(default=ScriptRound(), init=False)  # at the last failure
    _hung: int | None = field(default=None, init=False)  # steps that were finished at the last hang
    _newest: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._newest = newest_snapshot(self.snapshot_dir) or NO_SNAPSHOT

    def charge(
        self, kind: Kind, *, step: int | None = None, script: ScriptRound | None = None, in_vain: bool = False
    ) -> bool:
        """Count a failure; returns whether the ranks may be restarted.

        Args:
            kind: of the failure.
            step: that was finished at a hang.
            script: what is known of the round, if the loop is the script's own.
            in_vain: whether it timed out where it did before, without a step in between.
        """
        newest = newest_snapshot(self.snapshot_dir)
        if newest and newest > self._newest:
            self._newest, self.all_own = newest, 0
            self._reset()
        elif script and script.is_further_than(self._script):
            self._reset()
        self._script = script or self._script
        self._count(kind, step, unreadable=newest is None)
        self.waited = self.waited + 1 if in_vain else 0
        charged, others = max(self.own, self.repeated, self.waited), max(self.peer, self.storage, self.hangs)
        return (
            charged <= self.max_restarts
            and others <= self.max_peer_failures
            and self.all_own <= max(self.max_script_failures, self.max_restarts)
        )

    def _reset(self) -> None:
        self.own = self.peer = self.storage = self.hangs = self.repeated = self.waited = 0
        self._hung = None

    def _count(self, kind: Kind, step: int | None, *, unreadable: bool) -> None:
        if kind == "peer":
            self.peer += 1
        elif kind == "storage" or (unreadable and kind != "drained"):
            self.storage += 1
        elif kind == "hang":
            self.hangs += 1
            self.repeated = self.repeated + 1 if step == self._hung else 0
            self._hung = step
        elif kind != "drained":
            self.own += 1
            self.all_own += 1
