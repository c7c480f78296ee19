"""Which steps a script with its own loop has taken, and when: how many of them a restart has thrown away. Pure.

A script tells nobody where it resumes. What it loads does: a file that was last changed when the script had taken so
many steps holds the state after these, and a script that loads none begins anew. Of a file that the script was seen to
save the step is known; else it is between two looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

Mark: TypeAlias = tuple[int, int]  # nanoseconds of Unix time, and the steps taken by then

LONGEST: Final = 64  # marks that nodes exchange at each start; older ones are further apart
RECENT: Final = 32  # that stay as they are
REPORTED: Final = 16  # of the newest that a report has, besides each fourth of those before
APART: Final = 500_000_000  # nanoseconds between two marks
SAVING: Final = 2_000_000_000  # nanoseconds, at most, from a file's last change to the end of what saves it
SETTLED: Final = 2  # steps after which nothing is loaded any more: torch takes one to create an optimizer's state


class StepsTaken:
    """The steps of a run over all of its starts, as one node has seen them.

    Attributes:
        marks: when how many steps were taken, the oldest first.
        saves: when the script had saved a checkpoint, and after how many steps.
        resumed_from: the step that the current ranks have resumed from; None: not known yet, or they are the first.
        lost: steps that were taken before and are taken again.
    """

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.saves: list[Mark] = []
        self._about = ""
        self.resumed_from: int | None = None
        self.lost = 0
        self._former = 0  # marks of former ranks, which stay
        self._base: int | None = 0  # steps before those of the current ranks; None: not known yet
        self._may_save = True

    def restart(
        self, marks: Sequence[Sequence[int]], saves: Sequence[Sequence[int]] = (), *, may_save: bool = True
    ) -> None:
        """Ranks start again.

        Args:
            marks: those of the node that has seen the most steps.
            saves: those of all nodes, the oldest first.
            may_save: whether the script may have saved a checkpoint; else none was seen on any node.
        """
        self._may_save = may_save
        self.saves = [(time, steps) for time, steps in saves]
        self.marks = [(time, steps) for time, steps in marks]
        self.resumed_from, self.lost = None, 0
        self._base = None if marks else 0

    def add(self, steps: int, now: int, loaded: int) -> bool:
        """Add the steps of the current ranks; returns whether it has just become known where they have resumed.

        Args:
            steps: that these ranks have taken so far.
            now: in nanoseconds of Unix time.
            loaded: when the newest file that they have loaded was last changed; 0: none.
        """
        known = self._base is not None
        if self._base is None and steps >= SETTLED:
            self._resume(loaded)
        if self._base is not None and steps:
            self._mark(now, self._base + steps)
        return not known and self._base is not None

    def saved(self, steps: int, now: int) -> None:
        """The script has saved a checkpoint, after so many steps of the current ranks; may be called again."""
        if self._base is None:
            return
        others = [one for one in self.saves if one[1] != self._base + steps]  # one may be saved as two files
        self.saves = [*others[1 - LONGEST :], (now, self._base + steps)]

    @property
    def reported(self) -> dict[str, tuple[Mark, ...]]:
        """What a report has of it, for agents that know nothing."""
        former, newest = self.marks[:-REPORTED], self.marks[-REPORTED:]
        return {"taken": (*former[::4], *newest), "saves": tuple(self.saves[-REPORTED:])}

    @property
    def unknown(self) -> bool:
        """Whether it is not known yet where the current ranks resumed."""
        return self._base is None

    @property
    def before(self) -> int:
        """The steps before those of the current ranks; 0 while that is not known."""
        return self._base or 0

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the resume, for the job's progress."""
        return {} if self.resumed_from is None else {"resumed_from": self.resumed_from}

    @property
    def anew(self) -> str:
        """That the script has begun anew after a restart; empty if it has not."""
        if not self.lost or self.resumed_from:
            return ""
        if self._may_save:
            return f"{self}; the script has loaded nothing that it saved in this run"
        return f"{self}; the script was not seen to save a checkpoint"

    def __str__(self) -> str:
        about = self._about
        return f"resumed at {about}step {self.resumed_from}: {about}{self.lost} step{'s'[: self.lost != 1]} lost"

    def _resume(self, loaded: int) -> None:
        known = next((steps for time, steps in self.saves if loaded <= time <= loaded + SAVING), None) if loaded else 0
        self.resumed_from = self._base = _steps_at(self.marks, loaded) if known is None else known
        self._about = "about " if known is None and self._base else ""
        self.lost = last_step(self.marks) - self._base
        self.marks = [mark for mark in self.marks if mark[1] <= self._base]
        self.saves = [save for save in self.saves if save[1] <= self._base]
        if loaded:
            self.marks.append((loaded, self._base))  # the same file may be loaded again
        self._former = len(self.marks)

    def _mark(self, now: int, steps: int) -> None:
        if self.marks and steps <= self.marks[-1][1]:
            return
        if len(self.marks) > self._former + 1 and self.marks[-1][0] < self.marks[-2][0] + APART:
            self.marks.pop()
        self.marks.append((now, steps))
        if len(self.marks) > LONGEST:
            self.marks = [*self.marks[:-RECENT:2], *self.marks[-RECENT:]]
            self._former = 0


def last_step(marks: Sequence[Sequence[int]]) -> int:
    """The steps that were taken in all."""
    return marks[-1][1] if marks else 0


def _steps_at(marks: Sequence[Mark], time: int) -> int:
    """The steps taken by then, between two marks in proportion; none before the first."""
    before: Mark | None = None
    for mark in marks:
        if mark[0] > time:
            if before is None:
                return 0
            return before[1] + (mark[1] - before[1]) * (time - before[0]) // (mark[0] - before[0])
        before = mark
    return last_step(marks)
