"""The report that agents of an earlier time have left, of a run whose nodes have all ended, as for a suspended job."""

from __future__ import annotations

import threading
from typing import Final

from kitjob.report import Report
from kittrain.agent.report.report_sinks import Sink

PATIENCE: Final = 1.0  # seconds that a round waits for it: what is lost without it is a number


class FormerReport:
    """Read in the background from now on, while this node prepares.

    Args:
        sink: that has it.
        run: its id; that of another run is none.
    """

    def __init__(self, sink: Sink, run: str) -> None:
        self._sink = sink
        self._run = run
        self._found: Report | None = None
        self._thread = threading.Thread(target=self._fetch, name="former-report", daemon=True)
        self._thread.start()

    def read(self) -> Report | None:
        """The report; None: there is none, or it cannot be read in time."""
        self._thread.join(PATIENCE)
        return self._found

    def _fetch(self) -> None:
        try:
            found = self._sink.last()
        except OSError:
            return  # the first report of this round says what is wrong
        if found and found.run == self._run:
            self._found = found
