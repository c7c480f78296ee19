"""kitctl reads the reports that the trainer writes."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from kitctl.targets.cluster.read import reports
from kitctl.targets.local.folder import JobFolder
from kitjob import typed
from kitjob.names import PREPARING_KEY
from kitjob.report import Progress, Report, Termination
from kitjob.run import RunFacts
from kittrain.agent.hooks.script_progress import ScriptProgress
from kittrain.agent.report.recovery import RANK_PARTS
from kittrain.agent.setup.preparation import preparing
from kittrain.job.env import NodeEnv
from kittrain.outcome import termination
from kittrain.outcome.failures import Failure
from kittrain.outcome.termination import Ending
from kittrain.system.heartbeat import Phase
from tests.trainer.agent.report.test_publish import connect, meet, reporter
from tests.trainer.nodes import free_port
from tests.trainer.rank.training.test_report import STEP
from tests.trainer.rank.training.test_report import reporter as progress_reporter


def test_kitctl_reads_the_report_of_rank_0_s_agent(tmp_path: Path) -> None:
    first, second = reporter(tmp_path, 0), reporter(tmp_path, 1)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [second, first])
    second.stop()
    report = typed.load(Report, (tmp_path / "report.json").read_bytes())
    assert (report.run, report.round, report.world_size, report.forming) == ("run-1", 1, 4, False)
    assert report.formed > 0
    node = report.nodes["1"]
    assert (node.pod, node.host, node.group_rank, node.ranks) == (
        "job-1",
        "localhost",
        0,
        (0, 1),
    )
    assert node.joined > 0
    del store


def test_kitctl_reads_every_field_of_the_progress(tmp_path: Path) -> None:
    own_loop = ScriptProgress()
    own_loop.add(3, 1.0, 1000.0)
    with progress_reporter(tmp_path / "progress.json") as reporter:
        reporter.begin(3)
        reporter.step(STEP)
    progress = typed.load(Progress, (tmp_path / "progress.json").read_bytes())
    assert (progress.step, progress.resumed_from, progress.of_own_loop) == (4, 3, False)
    assert Progress(**own_loop.facts).of_own_loop


class SteppedRanks:
    """Ranks that have taken one step."""

    script_progress: ClassVar[dict[str, object]] = {}
    loaded: ClassVar[int] = 0
    script_steps: ClassVar[int] = 0
    group: ClassVar[int] = 0
    separate: ClassVar[int] = 0
    loaded_file: ClassVar[None] = None
    saved: ClassVar[None] = None
    read_at: ClassVar[float] = 0.0
    last: ClassVar[tuple[Phase, int, float]] = (Phase.SYNCING, 1, 0.0)
    moved: ClassVar[float] = 0.0
    pids: ClassVar[list[int]] = []

    def phases(self) -> dict[Phase, float]:
        return {}

    def reached(self, phase: Phase) -> float:
        return time.monotonic() + phase


def test_kitctl_reads_the_state_of_the_group(tmp_path: Path) -> None:
    leader = reporter(tmp_path, 0)
    port = free_port()
    store = connect(port, host=True)
    leader.recovery.begin("node 1 is lost")
    meet(port, "a", [leader])
    leader.observe(SteppedRanks(), {"busy": {"0": 0.25, "1": 0.5}, "slow": {"1": 1.5}})
    leader.stop()
    report = typed.load(Report, (tmp_path / "report.json").read_bytes())
    assert (report.busy, report.slow) == ({"0": 0.5}, {"1": 1.5})
    assert report.last_recovery
    assert report.last_recovery.cause == "node 1 is lost"
    assert set(report.last_recovery.parts) == {name for name, _ in RANK_PARTS}
    del store


def test_kitctl_reads_what_a_node_does_before_it_joins(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.node(1).path.mkdir(parents=True)
    with preparing(
        "installing requirements",
        NodeEnv(run=RunFacts(report=f"file:{folder.report_path}"), node_index=1, pod="job-1"),
        print,
    ):
        found = folder.preparing[1]
        data = {f"{PREPARING_KEY}1": (tmp_path / "preparing-1.json").read_text()}
    assert (found.pod, found.what) == ("job-1", "installing requirements")
    assert 0 < found.since <= time.time()
    assert reports.preparing({"data": data}) == {1: found}
    assert folder.preparing == {}


def test_kitctl_reads_a_termination_message() -> None:
    failure = Failure(rank=3, exit_code=1, error="ValueError: no", traceback="Traceback", time=12)
    ending = Ending(outcome="fatal", reason="rank 3 failed", failure=failure)
    termination_message = typed.load(Termination, termination.message(ending, node_index=1))
    assert (
        termination_message.outcome,
        termination_message.reason,
        termination_message.rank,
        termination_message.node,
        termination_message.time,
    ) == ("fatal", "rank 3 failed", 3, 1, 12)
    assert (termination_message.error, termination_message.traceback) == ("ValueError: no", "Traceback")
    assert set(asdict(ending)) <= {"outcome", "reason", "failure", "node"}
