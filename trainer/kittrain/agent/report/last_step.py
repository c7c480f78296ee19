"""Completes the report of a finished run whose agents were all lost before they had told its last step or snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable

from kitjob.record import replace
from kittrain.agent.report.report_sinks import sink_of
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker


def report_last_step(node: NodeEnv, log: Callable[[str], None]) -> None:
    """Report the step of the run's marker, from node 0, if the last report lacks it; an error is only logged."""
    step = marker.last_step(node.snapshot_dir, node.run_id) if node.snapshot_dir and node.node_index == 0 else None
    sink = sink_of(node.run.report, log, os.environ) if step is not None else None
    if step is None or sink is None:
        return
    try:
        last = sink.last()
        if last and last.run == node.run_id and min(last.progress.step or 0, last.progress.snapshot_step or 0) < step:
            progress = replace(last.progress, step=step, snapshot_step=step, eta_seconds=0.0)
            sink.put(replace(last, forming=False, progress=progress))
    except OSError as error:
        log(f"warning: the status does not show the run's last step: {error}")
