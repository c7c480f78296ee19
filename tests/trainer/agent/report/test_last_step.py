"""What a finished run's report lacks if its agents were killed before they could write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitjob.job_keys import JobKeys
from kitjob.record import replace
from kitjob.report import MirrorReport, NodeAssignment, Progress, Report
from kitjob.run import RunFacts
from kitjob.sections import Snapshots
from kittrain.agent.report.last_step import after_the_end, report_last_step
from kittrain.agent.report.report_sinks import FileSink
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker
from kittrain.outcome.termination import FINISHED, Ending

LAST = Report(run="run", forming=True)


def reported(folder: Path, told: Report, *, node: int = 0) -> Progress:
    """The progress after a run of 64 steps, of which ``told`` was the last report."""
    sink = FileSink(folder / "report.json")
    sink.put(told)
    marker.mark(folder, "run", {"step": 64})
    run = RunFacts(report=f"file:{sink.path}")
    report_last_step(NodeEnv(run_id="run", snapshot_dir=folder, node_index=node, run=run), pytest.fail)
    found = sink.last()
    assert found is not None
    return found.progress


@pytest.mark.parametrize(("step", "snapshot_step"), [(None, None), (0, 0), (60, 32), (64, 32), (64, None), (64, 64)])
def test_the_last_step_and_its_snapshot_are_told(tmp_path: Path, step: int | None, snapshot_step: int | None) -> None:
    progress = reported(tmp_path, replace(LAST, progress=Progress(step=step, snapshot_step=snapshot_step)))
    assert (progress.step, progress.snapshot_step) == (64, 64)


def test_only_node_0_tells_and_only_of_its_run(tmp_path: Path) -> None:
    assert reported(tmp_path, LAST, node=1).step is None
    assert reported(tmp_path, replace(LAST, run="another")).step is None


def left(folder: Path, told: Report, *, node: int = 0, shared: bool = False) -> tuple[Ending | None, bool]:
    """How a node ends that takes the place of a lost one after that report, and whether the report says so still."""
    sink = FileSink(folder / "report.json")
    sink.put(told)
    job = JobKeys(snapshots=Snapshots(storage="claim" if shared else "memory", mirror="s3://bucket/run"))
    ending = after_the_end(
        NodeEnv(run_id="run", node_index=node, job=job, run=RunFacts(report=f"file:{sink.path}")), pytest.fail
    )
    found = sink.last()
    assert found is not None
    return ending, found.ended


def test_a_node_that_comes_after_the_end_does_not_wait_for_the_others(tmp_path: Path) -> None:
    nodes = {str(index): NodeAssignment(group_rank=rank) for index, rank in ((0, 1), (2, 0))}
    mirror = MirrorReport(url="s3://bucket/run", step=40, behind=1)
    ended = Report(run="run", ended=True, nodes=nodes, progress=Progress(step=64, snapshot_step=64), mirror=mirror)
    assert left(tmp_path, ended, node=0) == (FINISHED, True), "another one holds what there is"
    ending, still = left(tmp_path, ended, node=2)
    assert ending
    assert (ending.outcome, still) == ("fatal", False), "else it could never be started again"
    assert "its newest snapshot is of step 40; the node that had it is lost" in ending.reason
    complete = replace(ended, mirror=replace(mirror, step=64, behind=0))
    assert left(tmp_path, complete, node=2) == (FINISHED, True)
    for other in (replace(ended, ended=False), replace(ended, run="another")):
        assert left(tmp_path, other, node=2)[0] is None
    assert left(tmp_path, ended, node=2, shared=True)[0] is None
