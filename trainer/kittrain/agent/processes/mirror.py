"""The process that copies published snapshots to ``snapshots.mirror``, next to the agent of rank 0's node.

It is a process of its own, so that nothing of it is in the ranks or the agent: no library, no thread, no credentials
in a traceback. What it uploads it finds in the folder; how far it is, it writes to a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kitjob import typed, variables
from kitjob.decoders import MalformedError
from kitjob.durations import seconds
from kitjob.record import replace
from kitjob.report import MirrorReport
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker
from kittrain.outcome.termination import Ending
from kittrain.system.import_path import with_packages

COMMAND: Final = (sys.executable, "-P", "-m", "kittrain.rank.snapshots.mirror")
REFUSED: Final = 1  # its exit code if somebody has to change something, or another writer has taken over
TAKEN: Final = 3  # another node of this run has taken over, which nothing is lost by
AGAIN: Final = 10.0  # seconds until one that has crashed is started again
FINISH: Final = 300.0  # seconds for what is left when the job ends; where that is kept nowhere, without progress
FINISH_FAILING: Final = 20.0  # the same, if it did not succeed lately
POLL: Final = 0.2
HELD: Final = ".mirroring"  # folder there, of what is being uploaded: kittrain.rank.snapshots.mirror.uploading
USED: Final = ".mirror"  # file in the snapshot folder: which run has used which mirror
Log = Callable[[str], None]


class MirrorCheck:
    """Looks whether the mirror can be used, while the agent imports torch; None of it on other nodes than node 0."""

    def __init__(self, node: NodeEnv, log: Log) -> None:
        self._node = node
        self._log = log
        self._process = _start(node, "check") if node.job.snapshots.mirror and node.hosts_rendezvous else None

    def ending(self) -> Ending | None:
        """Why the node must not begin; None if it can go on."""
        if self._process is None:
            return None
        _, errors = self._process.communicate()
        code, reason = self._process.returncode, (errors.strip().splitlines() or ["no reason given"])[-1]
        if code == 0:
            for line in errors.splitlines():
                if line.startswith("warning: "):
                    self._log(line)
            _mark_used(self._node)
            return None
        if _was_used(self._node):
            self._log(f"warning: snapshots are not mirrored now: {reason}")
            return None
        return Ending(outcome="fatal" if code == REFUSED else "retryable", reason=reason)


@dataclass
class Progress:
    """When a mirror took something last that it had not taken before.

    What is uploaded again after a failure is not new: else a store that fails at the end of each would have all time.

    Attributes:
        since: that time, or when it began, by the caller's clock.
    """

    since: float
    _least: dict[tuple[int | None, int, int], int] = field(default_factory=dict)  # bytes, by what is to be uploaded

    def see(self, report: MirrorReport, now: float) -> None:
        """Take how far it is now."""
        what = (report.step, report.behind, report.behind_steps)
        if what not in self._least or report.behind_bytes < self._least[what]:
            self.since, self._least[what] = now, report.behind_bytes


class MirrorProcess:
    """Runs the uploading process while this node has rank 0.

    Args:
        node: the node's environment.
        scratch: the agent's temporary folder.
        log: receives lines for the log.

    Attributes:
        holding: why this node has not ended yet, although its training has; empty: it has not, or nothing is wrong.
        missing: what it does not have of the end; empty: nothing, as far as is known.
        lost: the same, where it is nowhere else.
    """

    def __init__(self, node: NodeEnv, scratch: Path, log: Log) -> None:
        self._node = node
        self._status = scratch / "mirror.json"
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._started_at = 0.0
        self._leads = self._finishing = False
        snapshots = node.job.snapshots
        self._only_copy = seconds(snapshots.mirror_timeout) if snapshots.in_memory else None
        self._stays = snapshots.shared  # whether what is here is there after the end
        self.holding = self.missing = self.lost = ""

    def lead(self, *, leads: bool) -> None:
        """A round begins; ``leads``: with rank 0 here."""
        self._leads = leads
        if not leads:
            self._kill()
        elif self._process is None or self._process.poll() is not None:
            self._begin()

    def watch(self) -> None:
        """Start it again if it has crashed; call it often."""
        code = self._process.poll() if self._leads and self._process else None
        crashed = code not in {None, 0, REFUSED, TAKEN}
        if crashed and not self._finishing and time.monotonic() > self._started_at + AGAIN:
            self._log(f"warning: the mirror's process has ended with {code}: starting it again")
            self._begin()

    @property
    def report(self) -> MirrorReport | None:
        """How far it is; None on nodes without rank 0. May be read from another thread."""
        if not self._leads:
            return None
        found = MirrorReport(url=self._node.job.snapshots.mirror, node=self._node.node_index)
        with suppress(OSError, MalformedError):
            found = typed.load(MirrorReport, self._status.read_bytes())
        process = self._process
        code = process.poll() if process else None
        return found if found.warning or not code else replace(found, warning=f"its process has ended with {code}")

    def finish(self, left: Callable[[], float | None] = lambda: None, on_hold: Log = lambda _: None) -> None:
        """Upload what is left, as far as the time allows; the log says what is not.

        Where nothing else has it, an upload that fails is tried again as long as there is time; and where it goes with
        this node, time counts from the last part that the store has taken.

        Args:
            left: seconds until this node has to end; None: as long as it is worth while. It may change.
            on_hold: told why the end waits, if it does.
        """
        self._finishing = True
        report = self.report
        if self._process is None or report is None:
            return
        progress, until, trained = Progress(time.monotonic()), None, self._trained()
        self._end_input()
        while self._has_time(until, progress):
            if until is None and (seconds_left := left()) is not None:
                until = time.monotonic() + seconds_left
            with suppress(subprocess.TimeoutExpired):
                if self._process.wait(POLL) in {0, REFUSED, TAKEN} or self._only_copy is None:
                    break
                time.sleep(1.0)
                self._begin()
                self._end_input()
            if until is None:
                self._hold(self.report or report, on_hold)
        report, code = self.report or report, self._process.poll()
        if code not in {0, TAKEN} or (code == 0 and self._has_lost_the_end(report, trained)):
            self._tell(report, trained)
        self.holding = ""
        self._kill()

    def _has_lost_the_end(self, report: MirrorReport, trained: int | None) -> bool:
        """Whether the folder lacks what was trained, while all that it has is there: one in memory may be deleted.

        A run that had nothing left to train has no snapshot of its own.
        """
        if trained in {None, report.step}:
            return False
        return report.step is not None or self._trained() is None

    def _trained(self) -> int | None:
        """The last step of the run, if it has finished."""
        folder = self._node.snapshot_dir
        return marker.last_step(folder, self._node.run_id) if folder else None

    def _end_input(self) -> None:
        assert self._process
        assert self._process.stdin
        self._process.stdin.close()

    def _has_time(self, until: float | None, progress: Progress) -> bool:
        """Whether to go on waiting; ``until``: when a drained node ends, whatever it has uploaded."""
        if not self._stays and (report := self.report):
            progress.see(report, time.monotonic())
        return time.monotonic() < (until or progress.since + self._patience())

    def _patience(self) -> float:
        if self._only_copy is not None:
            return self._only_copy
        report = self.report
        return FINISH_FAILING if report and report.warning else FINISH

    def _hold(self, report: MirrorReport, on_hold: Log) -> None:
        """Say, once, that the end waits for a store that does not take what nothing else has."""
        if self._only_copy is None or self.holding or not report.warning:
            return
        self.holding = (
            f"training has ended, and this node stays for up to {self._only_copy} s in which nothing is taken, as what "
            f"it trained would be lost: {report.warning}"
        )
        self._log(f"warning: {self.holding}")
        on_hold(self.holding)

    def _tell(self, report: MirrorReport, trained: int | None) -> None:
        """Say what is not in the mirror, and why; ``trained``: the run's last step, if it has finished."""
        why = "there was no time" if report.behind else "what is newer is not to be found"
        text = f"{report.lacking}; {report.warning or why}"
        if trained is None or report.step != trained:  # else only older ones are not there
            self.missing, self.lost = text, text if self._only_copy is not None else ""
        self._log(f"warning: {text}")

    def _begin(self) -> None:
        self._started_at = time.monotonic()
        self._process = _start(self._node, "upload", "--status", str(self._status), "--parent", str(os.getpid()))

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            if folder := self._node.snapshot_dir:
                shutil.rmtree(folder / HELD, ignore_errors=True)


def _start(node: NodeEnv, *words: str) -> subprocess.Popen[str]:
    environ = with_packages({**os.environ, variables.KIT_RUN_ID: node.run_id}, node.packages)
    errors = subprocess.PIPE if words == ("check",) else None
    return subprocess.Popen((*COMMAND, *words), env=environ, text=True, stderr=errors, stdin=subprocess.PIPE)


def _claim(node: NodeEnv) -> str:
    return f"{node.run_id} {node.job.snapshots.mirror}\n"


def _mark_used(node: NodeEnv) -> None:
    """From now on a mirror that fails is a warning: the folder has what it has, or will have."""
    if node.snapshot_dir is not None and not _was_used(node):
        with suppress(OSError):  # then the next failure ends the job, too
            node.snapshot_dir.mkdir(parents=True, exist_ok=True)
            (node.snapshot_dir / USED).write_text(_claim(node))


def _was_used(node: NodeEnv) -> bool:
    try:
        return node.snapshot_dir is not None and (node.snapshot_dir / USED).read_text() == _claim(node)
    except OSError:
        return False
