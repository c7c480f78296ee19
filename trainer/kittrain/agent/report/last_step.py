"""Reads and completes the report of a finished run whose agents were lost before they had ended."""

from __future__ import annotations

import os
from collections.abc import Callable

from kitjob.record import replace
from kitjob.report import MirrorReport, Report
from kittrain.agent.report.report_sinks import sink_of
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker
from kittrain.outcome.termination import FINISHED, Ending


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


def after_the_end(node: NodeEnv, log: Callable[[str], None]) -> Ending | None:
    """How a node ends whose job has trained to its end without it; None: it has not, as far as is known.

    Where snapshots are in memory, no folder says so, and a node that takes the place of a lost one would wait in vain.
    """
    sink = sink_of(node.run.report, log, os.environ) if node.job.snapshots.in_memory else None
    try:
        last = sink.last() if sink else None
        if sink is None or last is None or last.run != node.run_id or not last.ended:
            return None
        ending = _without(last, node.node_index)
        if ending is not FINISHED:  # what starts it again by a command goes on from the mirror
            sink.put(replace(last, ended=False))
    except OSError as error:
        log(f"warning: whether the run has ended already is not known: {error}")
        return None
    return ending


def _without(last: Report, node: int) -> Ending:
    """How the node that was lost ends."""
    led = str(node) in last.nodes and last.nodes[str(node)].group_rank == 0
    mirror = last.mirror or MirrorReport()
    if not led or (mirror.step == last.progress.snapshot_step and not mirror.behind):
        return FINISHED
    newest = "it has no snapshot" if mirror.step is None else f"its newest snapshot is of step {mirror.step}"
    lost = f"{mirror.url} does not have everything: {newest}; the node that had it is lost"
    return Ending(outcome="fatal", reason=f"all ranks succeeded, and what they have trained is lost: {lost}")
