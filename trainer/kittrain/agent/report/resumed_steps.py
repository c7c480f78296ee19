"""How many steps of a run with snapshots a restart of its ranks has thrown away. Pure."""

from __future__ import annotations

from collections.abc import Callable

from kitjob.record import replace
from kitjob.report import Progress, RankProgress, RecoveryTimings


class ResumedSteps:
    """The steps of the current ranks' resume, as the agent with group rank 0 sees them.

    Attributes:
        lost: steps that are taken again.
        not_whole: why they did not resume from the newest snapshot, if lost nodes had parts of it; empty: they did.
        text: where the ranks have resumed, and how many steps are lost; empty if none are, or if it is not known yet.
    """

    def __init__(self) -> None:
        self.text = self.not_whole = self._about = ""
        self._reached = self.lost = 0
        self._before: float | None = None  # when the ranks of the round before took their first step

    @staticmethod
    def reached(progress: Progress) -> int:
        """The last step that was reported."""
        return int(progress.step or 0)

    def restart(self, reached: int, progress: Progress) -> None:
        """Ranks start again, after this step; ``progress`` is still that of the former ones."""
        self._about = self.not_whole = ""  # the first is before the number, if that is only known from a report
        self.text, self._reached, self._before, self.lost = "", reached, progress.resumed_at, 0

    def remember(self, reached: int) -> None:
        """Take the step that a former start had reported; later ones may have been taken. From any thread."""
        self._reached, self._about = max(self._reached, reached), "at least "

    def add(self, read: Callable[[], RankProgress]) -> bool:
        """Whether it has just become known that steps are lost; ``read`` returns the progress, if that is needed."""
        if not self._reached:
            return False
        progress = read()
        if progress.resumed_at in (None, self._before):
            return False  # the current ranks have not taken a step yet
        step = int(progress.resumed_from or 0)
        lost, self._reached = self._reached - step, 0
        self.lost, self.not_whole = max(lost, 0), progress.not_whole
        if lost > 0:
            why = f", as {self.not_whole}" if self.not_whole else ""
            self.text = f"resumed at step {step}: {self._about}{lost} step{'s'[: lost != 1]} lost{why}"
        return bool(self.text)

    @property
    def unknown(self) -> bool:
        """Whether it is not known yet where the ranks resumed."""
        return bool(self._reached)

    @property
    def warning(self) -> str:
        """The lost steps, where no recovery can name them, as no agent is left that measured it; or too many are."""
        return self.text if self._about or self.not_whole else ""

    def explained(self, recovery: RecoveryTimings | None) -> RecoveryTimings | None:
        """The last recovery, with the lost steps in its cause."""
        if not (recovery and self.text):
            return recovery
        return replace(recovery, cause=f"{recovery.cause}; {self.text}")
