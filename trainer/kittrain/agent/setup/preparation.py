"""Reports what a node does before it joins the others, if that takes long."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kitjob.report import Preparation
from kittrain.agent.report.report_sinks import Sink, sink_of
from kittrain.job.env import NodeEnv

INSTALLING: Final = "installing requirements"
UNREACHED_FOR: Final = 30.0  # seconds until it is reported, and again after twice as long: node 0 may not run for hours
# An address, or a name, that fails; or a secret that only one of both has.
_NO_WAY: Final = re.compile(
    r"timed out|No route to host|unreachable|\[Errno -\d+\] "
    r"|this node has none\)|node 0 has no secret|does not know this run's secret"
)
Log = Callable[[str], None]


@contextmanager
def preparing(what: str, node: NodeEnv, log: Log) -> Iterator[None]:
    """Report that the node does ``what`` within the context; a failed report is only logged."""
    sink = sink_of(node.run.report, log, os.environ)
    _report(sink, node, Preparation(pod=node.pod, since=time.time(), what=what), log)
    try:
        yield
    finally:
        _report(sink, node, None, log)


class Unreached:
    """Reports that a node finds no way to node 0, which is of use once that runs; one that refuses is on its way."""

    def __init__(self, node: NodeEnv, log: Log) -> None:
        self._node, self._log = node, log
        self._since = 0.0  # in time.monotonic()
        self._next, self._told = UNREACHED_FOR, False

    def waits(self, reason: str) -> None:
        """Called after each attempt, with its error."""
        now = time.monotonic()
        if not _NO_WAY.search(reason):
            self._since = 0.0
        elif not self._since:
            self._since = now
        elif now - self._since >= self._next:
            self._next, self._told = 2 * self._next, True
            self._report(Preparation(pod=self._node.pod, since=time.time(), what=reason))

    def reached(self) -> None:
        """Take it back."""
        if self._told:
            self._told = False
            self._report(None)

    def _report(self, note: Preparation | None) -> None:
        _report(sink_of(self._node.run.report, self._log, os.environ), self._node, note, self._log)


def _report(sink: Sink | None, node: NodeEnv, note: Preparation | None, log: Log) -> None:
    try:
        if sink:
            sink.prepare(node.node_index, note)
    except OSError as error:
        log(f"warning: the status does not show what this node does: {error}")
