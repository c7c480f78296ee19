"""What a finished run's report lacks if its agents were killed before they could write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitjob.record import replace
from kitjob.report import Progress, Report
from kitjob.run import RunFacts
from kittrain.agent.report.last_step import report_last_step
from kittrain.agent.report.report_sinks import FileSink
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker

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
