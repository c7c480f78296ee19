"""What a finished run's report lacks if its agents were killed before they could write it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from kitjob.job_keys import JobKeys
from kitjob.record import replace
from kitjob.report import MirrorReport, Progress, Report
from kitjob.run import RunFacts
from kitjob.sections import Snapshots
from kittrain.agent.report import last_step
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


Storage = Literal["claim", "perNode", "memory"]


def left(
    folder: Path,
    told: Report,
    *,
    node: int = 0,
    storage: Storage = "memory",
    nodes: str = "3",
    mirror: str = "s3://bucket/run",
) -> tuple[Ending | None, bool]:
    """How a node ends that takes the place of a lost one after that report, and whether the report says so still."""
    sink = FileSink(folder / "report.json")
    sink.put(told)
    job = JobKeys(nodes=nodes, snapshots=Snapshots(storage=storage, mirror=mirror))
    run = RunFacts(report=f"file:{sink.path}")
    ending = after_the_end(NodeEnv(run_id="run", node_index=node, snapshot_dir=folder, job=job, run=run), pytest.fail)
    found = sink.last()
    assert found is not None
    return ending, found.ended


MIRROR = MirrorReport(url="s3://bucket/run", step=40, behind=1, node=2)
ENDED = Report(run="run", ended=True, progress=Progress(step=64, snapshot_step=64), mirror=MIRROR)


def test_a_node_that_comes_after_the_end_does_not_wait_for_the_others(tmp_path: Path) -> None:
    assert left(tmp_path, ENDED, node=1) == (FINISHED, True), "another one holds what there is"
    complete = replace(ENDED, mirror=replace(MIRROR, step=64, behind=0))
    for node in (0, 2):
        assert left(tmp_path, complete, node=node) == (FINISHED, True)
    for other in (replace(ENDED, ended=False), replace(ENDED, run="another")):
        assert left(tmp_path, other, node=2)[0] is None
    assert left(tmp_path, ENDED, node=2, storage="claim")[0] is None


@pytest.mark.parametrize("node", [0, 1])
def test_without_a_mirror_a_node_that_comes_after_the_end_does_not_wait_either(tmp_path: Path, node: int) -> None:
    told = replace(ENDED, mirror=None)
    assert left(tmp_path, told, node=node, storage="perNode", mirror="")[0] == FINISHED
    assert left(tmp_path, replace(told, ended=False), node=node, storage="perNode", mirror="")[0] is None
    assert left(tmp_path, told, node=node, storage="claim", mirror="")[0] is None, "its folder tells it"


def test_a_new_folder_after_the_end_says_what_the_mirror_lacks_and_waits_for_nobody(tmp_path: Path) -> None:
    """The nodes that have ended do not come back, and have what is missing."""
    ending, still = left(tmp_path, ENDED, node=2, storage="perNode")
    assert ending
    assert (ending.outcome, still) == ("done", True)
    assert ending.reason.endswith("its newest snapshot is of step 40; the node that uploaded it is lost")
    told = FileSink(tmp_path / "report.json").last()
    assert told
    assert ending.reason == f"{FINISHED.reason}, but {told.warning}", "the status has it, too"

    older = replace(ENDED, mirror=replace(MIRROR, step=64, behind=2))
    assert left(tmp_path, older, node=2, storage="perNode")[0] == FINISHED, "nobody misses those"
    assert left(tmp_path, ENDED, node=1, storage="perNode")[0] == FINISHED, "another one uploads"
    assert left(tmp_path, ENDED, node=2, storage="perNode", nodes="1:3")[0] is None, "it can train what is missing"
    assert left(tmp_path, older, node=2, storage="perNode", nodes="1:3")[0] == FINISHED

    marker.mark(tmp_path, "run", {"step": 64})
    assert left(tmp_path, ENDED, node=2, storage="perNode")[0] is None, "its folder is there, and tells it"


@pytest.mark.parametrize("node", [0, 2])  # with node 0 a job of some kinds ends
def test_the_node_that_uploaded_is_lost_and_nobody_else_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: int
) -> None:
    monkeypatch.setattr(last_step, "SILENT", 0.0)
    ending, still = left(tmp_path, ENDED, node=node)
    assert ending
    assert (ending.outcome, still) == ("fatal", False), "else it could never be started again"
    assert "its newest snapshot is of step 40; the nodes that had it are lost" in ending.reason
    older = replace(ENDED, mirror=replace(MIRROR, step=64, behind=2))
    assert left(tmp_path, older, node=node) == (FINISHED, True), "what was trained is there"


def test_what_replaces_the_node_that_uploaded_waits_for_the_one_that_does(tmp_path: Path) -> None:
    """Also while that one only says that it is still there."""
    sink = FileSink(tmp_path / "report.json")

    def go_on() -> None:
        for second in range(3):
            time.sleep(1.0)
            sink.put(replace(ENDED, updated=f"{second}", mirror=replace(MIRROR, node=1)))
        sink.put(replace(ENDED, mirror=replace(MIRROR, node=1, step=64, behind=0)))

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as others:
        patch.setattr(last_step, "SILENT", 2.5)
        others.submit(go_on)
        assert left(tmp_path, ENDED, node=0) == (FINISHED, True)
