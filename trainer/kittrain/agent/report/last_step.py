"""Reads and completes the report of a finished run whose agents were lost before they had ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kitjob.record import replace
from kitjob.report import MirrorReport, Report
from kittrain.agent.report.report_sinks import sink_of
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker
from kittrain.outcome.termination import FINISHED, Ending

SILENT: Final = 30.0  # seconds without a report of those that are left


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
    While another one uploads what there is, it waits for that if the job may end with it.
    """
    sink = sink_of(node.run.report, log, os.environ) if node.job.snapshots.in_memory else None
    try:
        last = sink.last() if sink else None
        if sink is None or last is None or last.run != node.run_id or not last.ended:
            return None
        told, heard = last.updated, time.monotonic()
        while not _is_mirrored(last) and (_uploads(last, node.node_index) or node.node_index == 0):
            if time.monotonic() > heard + SILENT:  # what starts it again by a command goes on from the mirror
                sink.put(replace(last, ended=False))
                return _lost(last.mirror or MirrorReport())
            time.sleep(sink.interval)
            with suppress(OSError):  # the next time
                last = sink.last() or last
            told, heard = last.updated, heard if told == last.updated else time.monotonic()
    except OSError as error:
        log(f"warning: whether the run has ended already is not known: {error}")
        return None
    return FINISHED


def _is_mirrored(last: Report) -> bool:
    return last.mirror is not None and last.mirror.step == last.progress.snapshot_step and not last.mirror.behind


def _uploads(last: Report, node: int) -> bool:
    """Whether the node that was lost was the one that uploads, as far as the others have told."""
    if last.mirror and last.mirror.node is not None:
        return bool(last.mirror.node == node)
    return str(node) in last.nodes and last.nodes[str(node)].group_rank == 0


def _lost(mirror: MirrorReport) -> Ending:
    """How a node ends if no other one has what the run has trained."""
    newest = "it has no snapshot" if mirror.step is None else f"its newest snapshot is of step {mirror.step}"
    lost = f"{mirror.url} does not have everything: {newest}; the nodes that had it are lost"
    return Ending(outcome="fatal", reason=f"all ranks succeeded, and what they have trained is lost: {lost}")
