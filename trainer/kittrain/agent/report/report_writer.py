"""Writes the job's report in the background: a sink that fails or hangs does not slow down training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kitjob.report import Report
from kittrain.agent.report.history import History
from kittrain.agent.report.report_sinks import Sink

FINAL_REPORT_TIMEOUT: Final = 3.0  # seconds to write the last report: a draining node has little time


class ReportWriter:
    """Of one node; it does nothing until the node leads a round.

    Args:
        sink: to write to.
        history: whose tail goes with the report if the run has no volume.
        report: makes it, as it is now; None: another node writes it.
        log: receives a line for each error, once.
    """

    def __init__(
        self, sink: Sink, history: History, report: Callable[[], Report | None], log: Callable[[str], None]
    ) -> None:
        self._sink = sink
        self._history = history
        self._report = report
        self._log = log
        self._tail_of_others = False  # whether others may have written the history's tail since this node did
        self._changed = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()  # errors already logged

    def begin(self, before: Callable[[Sink], None] | None = None) -> None:
        """This node leads from now on; ``before`` is called in the background ahead of its first report of all."""
        self._tail_of_others = not self._history.has_volume
        self.wake()
        if not self._thread:
            self._thread = threading.Thread(target=self._run, args=(before,), name="report", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """The report has changed: write it now, and not only when its interval is over."""
        self._changed.set()

    def stop(self) -> None:
        """Write the last report, for at most FINAL_REPORT_TIMEOUT seconds, and stop."""
        self._stopping = True
        self.wake()
        if self._thread:
            self._thread.join(FINAL_REPORT_TIMEOUT)

    def _run(self, before: Callable[[Sink], None] | None) -> None:
        if before:
            before(self._sink)
        last = False
        while not last:
            self._changed.wait(self._sink.interval)
            self._changed.clear()
            last = self._stopping
            self._write()

    def _write(self) -> None:
        if (report := self._report()) is None:
            return
        if self._tail_of_others:
            self._tail_of_others = False
            with suppress(OSError):  # their lines are missing then
                self._history.tail(self._sink.tail())
        try:
            self._sink.put(report, self._history.tail())
        except OSError as error:  # a full disk or an unreachable server: the next report may succeed
            reason = str(error)
            if reason not in self._warned:
                self._warned.add(reason)
                self._log(f"warning: cannot write the status report: {reason}")
