"""Tells that a round has ended where the node that tells it is lost, which else nobody would until the next one forms.

What Kubernetes knows of a lost machine comes 40 seconds later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from kitjob.record import replace
from kittrain.agent.report.report_sinks import Sink

SOON: Final = 2.0  # seconds in which most rounds form again, and a leader that lives tells it itself
GROUP_RANKS: Final = range(1, 3)  # who stands in: the next two nodes, as they may be lost together


def moment() -> str:
    """Now, as reports have it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class BackupReporter:
    """Stands in for the leader between two rounds.

    Args:
        run: id of the run.
        sink: of its reports.
        tail: the history without a volume, after the lines of others that it is given; empty: it has one.
    """

    def __init__(self, run: str, sink: Sink, tail: Callable[[str], str]) -> None:
        self._run = run
        self._sink = sink
        self._tail = tail
        self._over = threading.Event()

    def begin(self, cause: str) -> None:
        """The round has ended; what is known of it last counts. Starts a thread."""
        self.end()
        self._over = threading.Event()
        threading.Thread(target=self._tell, args=(cause, self._over), name="backup-reporter", daemon=True).start()

    def end(self) -> None:
        """The next round has formed, or this node ends."""
        self._over.set()

    def _tell(self, cause: str, over: threading.Event) -> None:
        """Once the sink answers, unless somebody else has."""
        pause = SOON
        while not over.wait(pause):
            pause = self._sink.interval
            with suppress(OSError):
                former = self._sink.last()
                if former and former.run == self._run and not (former.forming or former.ended):
                    tail = self._tail(self._sink.tail())
                    if not over.is_set() and self._sink.last() == former:  # a late leader's word counts
                        self._sink.put(replace(former, forming=True, ended_by=cause, updated=moment()), tail)
                return
