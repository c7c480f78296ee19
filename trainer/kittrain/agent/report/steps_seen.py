"""How far the ranks are, and how many steps their restarts have lost: in the library's loop, and in a script's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.record import replace
from kitjob.report import RankProgress, RecoveryTimings, Report
from kittrain.agent.report.agreement import Agreed
from kittrain.agent.report.observed import Ranks
from kittrain.agent.report.resumed_steps import ResumedSteps
from kittrain.agent.report.steps_taken import StepsTaken
from kittrain.system.texts import fit

NOTHING: Final = RankProgress()


class StepsSeen:
    """By one node. Only the one with rank 0 knows those of the library's loop.

    Args:
        progress_file: that rank 0 writes in the library's loop.

    Attributes:
        loaded: as ``Ranks.loaded``, of this round, and of all nodes' former ones.
        finished: as ``Ranks.finished``, of the last round in which there were such steps.
        in_script: as ``Ranks.script_steps``, of the last round.
        saved: whether a rank of this node was seen to save a checkpoint in a loop of the script's own.
        taken: in a loop of the script's own.
        resumed: in the library's loop.
        resumed_now: whether the ranks of a script's own loop have just shown where they have resumed.
    """

    def __init__(self, progress_file: Path) -> None:
        self._file = progress_file
        self._of_script = RankProgress()  # of a script that writes no progress file
        self.loaded = self.in_script = self.finished = 0
        self.saved = False
        self.taken = StepsTaken()
        self.resumed = ResumedSteps()
        self.resumed_now = False
        self._taken_up = False  # whether the steps before this round are known from a report alone

    def restart(self, agreed: Agreed) -> None:
        """A round begins, after these steps."""
        self._taken_up = self._taken_up and not self.in_script
        self._of_script = RankProgress()  # new ranks have taken no step yet
        self.loaded = agreed.loaded
        self.taken.restart(agreed.taken, agreed.saves, may_save=agreed.may_save)
        self.resumed.restart(agreed.reached, self.own)

    def take_up(self, former: Report | None) -> None:
        """Take what the run's last report has of a loop of the script's own: no agent of that time may be left."""
        if former and former.taken:
            self._taken_up = True
            self.taken.restart(former.taken, former.saves)

    def end(self, ranks: Ranks) -> None:
        """Take the last steps of ranks that have ended, of which a report may be a second old."""
        self.finished = ranks.finished or self.finished
        self._note_save(ranks)
        if not self.taken.unknown:
            self.taken.add(ranks.script_steps, time.time_ns(), ranks.loaded)

    def forget_file(self) -> None:
        """What the file has is from an earlier round with rank 0 on this node."""
        self._file.unlink(missing_ok=True)

    def observe(self, ranks: Ranks, *, leads: bool) -> Iterator[str]:
        """Take what this node's ranks show; yields what it logs, if it ``leads``."""
        self.loaded, self.in_script = max(self.loaded, ranks.loaded), ranks.script_steps
        self.resumed_now = self.taken.add(self.in_script, time.time_ns(), ranks.loaded)
        self._note_save(ranks)
        if facts := {**ranks.script_progress, **self.taken.facts}:
            self._of_script = RankProgress(**facts)
        if leads and self.resumed_now and self.taken.lost:
            yield self.taken.anew or str(self.taken)
        if leads and self.resumed.add(lambda: self.own):
            yield self.resumed.text

    @property
    def unknown(self) -> bool:
        """Whether it is not known yet where the ranks have resumed."""
        return self.resumed.unknown or self.taken.unknown

    @property
    def lost(self) -> int:
        """Steps that are taken again."""
        return self.resumed.lost or self.taken.lost

    @property
    def reached(self) -> int:
        """The last step of the library's loop."""
        return self.resumed.reached(self.own)

    @property
    def warning(self) -> str:
        """That more is lost than a recovery tells; empty: it is not."""
        return self.taken.anew or self.resumed.warning

    def explained(self, recovery: RecoveryTimings | None) -> RecoveryTimings | None:
        """The last recovery, with the lost steps in its cause."""
        if recovery and self.taken.lost:
            return replace(recovery, cause=f"{recovery.cause}; {self.taken}")
        if self._taken_up and self.taken.lost:
            return RecoveryTimings(cause=f"all nodes were started again; {self.taken}")  # no agent has measured it
        return self.resumed.explained(recovery)

    def _note_save(self, ranks: Ranks) -> None:
        """A rank that was seen to save: a write may have been followed by a rename, which is what is told then."""
        last = ranks.stored
        if last.number:
            self.saved = True
            self.taken.saved(last.step, time.time_ns() - int(1e9 * (time.monotonic() - last.at)))

    @property
    def progress(self) -> RankProgress:
        """How far the ranks are, on the node with rank 0; else what this node's ranks show."""
        own = self.own
        return self._of_script if own == NOTHING else own

    @property
    def own(self) -> RankProgress:
        """What the library's loop has written; nothing if the script does not use it, or it has not yet."""
        try:
            found: RankProgress = typed.decode(RankProgress, fit(typed.parse(self._file.read_bytes())))
        except (OSError, MalformedError):
            return NOTHING
        return found
