"""Reports what a node does before it joins the others, if that takes long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kitjob.report import Preparation
from kittrain.agent.report.report_sinks import Sink, sink_of
from kittrain.job.env import NodeEnv

INSTALLING: Final = "installing requirements"
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


def _report(sink: Sink | None, node: NodeEnv, note: Preparation | None, log: Log) -> None:
    try:
        if sink:
            sink.prepare(node.node_index, note)
    except OSError as error:
        log(f"warning: the status does not show what this node does: {error}")
