"""Listens to a history as metrics do."""

from __future__ import annotations

from kitjob.report import RankProgress
from kitjob.timeline import Event, Line


class Told(list[Line]):
    """The lines that a history was told, in order."""

    def add(self, line: Line) -> None:
        self.append(line)

    def progress(self, known: RankProgress) -> None:
        """Nothing."""

    @property
    def events(self) -> list[Event]:
        return [line for line in self if isinstance(line, Event)]
