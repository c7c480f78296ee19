"""Reads and completes the report of a finished run whose agents were lost before they had ended."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kitjob.record import replace
from kitjob.report import MirrorReport, Report
from kittrain.agent.report.report_sinks import Sink, sink_of
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

    Where each node has a folder of its own, a new one does not say so, and a node that takes the place of a lost one
    would wait in vain. While another one uploads what there is, it waits for that if the job may end with it.
    """
    snapshots = node.job.snapshots
    own = snapshots.enabled and not snapshots.shared
    sink = sink_of(node.run.report, log, os.environ) if own and not _has_marker(node) else None
    try:
        last = sink.last() if sink else None
        if sink is None or last is None or last.run != node.run_id or not last.ended:
            return None
        if not snapshots.mirror:
            return FINISHED  # the others have what was trained, in folders of their own
        told, heard = last.updated, time.monotonic()
        while not _is_mirrored(last) and (_uploads(last, node.node_index) or node.node_index == 0):
            no_other = not snapshots.in_memory and _uploads(last, node.node_index)
            if no_other or time.monotonic() > heard + SILENT:
                return _given_up(node, sink, last)
            time.sleep(sink.interval)
            with suppress(OSError):  # the next time
                last = sink.last() or last
            told, heard = last.updated, heard if told == last.updated else time.monotonic()
    except OSError as error:
        log(f"warning: whether the run has ended already is not known: {error}")
        return None
    return FINISHED


def _has_marker(node: NodeEnv) -> bool:
    """Whether the folder says by itself that the run has finished: then it is the one of before."""
    return marker.seen_finished(node.snapshot_dir, node.run_id)


def _given_up(node: NodeEnv, sink: Sink, last: Report) -> Ending | None:
    """How a node ends if the one that uploaded is lost, and no other one does; None: it trains what is missing."""
    if _has_newest(last):
        return FINISHED  # only older ones are not there
    missing = (last.mirror or MirrorReport(url=node.job.snapshots.mirror)).lacking
    if node.job.snapshots.in_memory:
        sink.put(replace(last, ended=False))  # what starts it again by a command goes on from the mirror
        reason = f"all ranks succeeded, and what they have trained is lost: {missing}; the nodes that had it are lost"
        return Ending(outcome="fatal", reason=reason)
    if node.job.min_nodes == 1:
        return None
    # Those that have ended still have it in their volumes: a mirror that lacks it is a warning there.
    warning = f"{missing}; the node that uploaded it is lost"
    sink.put(replace(last, warning=warning))
    return dataclasses.replace(FINISHED, reason=f"{FINISHED.reason}, but {warning}")


def _has_newest(last: Report) -> bool:
    """Whether the mirror has what the run has trained."""
    return last.mirror is not None and last.mirror.step == last.progress.snapshot_step


def _is_mirrored(last: Report) -> bool:
    """Whether it has all snapshots."""
    return _has_newest(last) and last.mirror is not None and not last.mirror.behind


def _uploads(last: Report, node: int) -> bool:
    """Whether the node that was lost was the one that uploads, as far as the others have told."""
    if last.mirror and last.mirror.node is not None:
        return bool(last.mirror.node == node)
    return str(node) in last.nodes and last.nodes[str(node)].group_rank == 0
