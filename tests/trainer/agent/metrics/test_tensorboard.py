"""The events of a run, as TensorBoard reads them: over restarts each step once, and a week in few bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kitjob import timeline
from kitjob.record import replace
from kitjob.report import RankProgress
from kitjob.run import RunFacts
from kitjob.sections import Metrics
from kitjob.timeline import Row
from kittrain.agent.metrics import tensorboard
from kittrain.agent.metrics.tensorboard import DENSE, TensorBoard, stride
from kittrain.job.env import ALONE, NodeEnv

LOSS = "loss_metrics/global_avg_loss"


def node(folder: Path | None) -> NodeEnv:
    job = replace(ALONE, metrics=Metrics(tensorboard=True))
    return NodeEnv(job=job, run_id="run", run=RunFacts(report=f"file:{folder}/report.json" if folder else ""))


def ranks(board: TensorBoard, begin: int, end: int, *, start: float, every: int = 10) -> None:
    """A start of the ranks, which resume from step ``begin`` and are killed after step ``end``."""
    for step in range(begin + every, end + 1, every):
        phases = {"DATA": 0.25, "FORWARD": 0.75}
        board.add(Row(time=start + step, seconds=1.0, round=1, world=2, step=step, steps=every, phases=phases))
        known = RankProgress(step=step, loss=1 / step, samples_per_second=64.0, resumed_from=begin, resumed_at=start)
        board.progress(known)
        board.progress(known)  # it is read more often than it is written


def shown(folder: Path, tag: str = LOSS) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / timeline.FOLDER / "run" / tensorboard.FOLDER), size_guidance={"scalars": 0})
    events.Reload()
    return [(one.step, one.value) for one in events.Scalars(tag)]


def test_each_step_is_there_once_over_restarts_of_ranks_and_of_the_agent(tmp_path: Path) -> None:
    log: list[str] = []
    now = count(1e9).__next__
    first = TensorBoard(node(tmp_path), log.append, now)
    ranks(first, 0, 100, start=1.0)
    ranks(first, 50, 200, start=2.0)
    first.close(60)
    second = TensorBoard(node(tmp_path), log.append, now)  # the first one's process was killed
    ranks(second, 150, 300, start=3.0)
    second.close(60)
    assert [step for step, _ in shown(tmp_path)] == [*range(10, 301, 10)]
    assert dict(shown(tmp_path))[300] == pytest.approx(1 / 300)
    assert dict(shown(tmp_path, "time_metrics/end_to_end(s)"))[300] == pytest.approx(0.1)
    assert dict(shown(tmp_path, "time_metrics/data_loading(%)"))[300] == pytest.approx(25.0)
    assert log == [f"TensorBoard events in {tmp_path}/history/run/tensorboard"] * 2


def test_metrics_of_the_script_are_written_when_they_change(tmp_path: Path) -> None:
    board = TensorBoard(node(tmp_path), print)
    for step in range(1, 7):
        board.progress(RankProgress(step=step, resumed_at=1.0, metrics={"accuracy": step // 3, "bad": None}))
    board.close(60)
    assert shown(tmp_path, "metrics/accuracy") == [(1, 0.0), (3, 1.0), (6, 2.0)]


def test_a_loop_of_the_scripts_own_and_a_node_without_rank_0_write_nothing(tmp_path: Path) -> None:
    board = TensorBoard(node(tmp_path), print)
    board.add(Row(time=1.0, seconds=1.0, round=1, step=5, steps=5))
    board.progress(RankProgress(step=5, steps_per_second=5.0, resumed_at=1.0))
    board.close(60)
    assert not [*tmp_path.iterdir()]


def told(board: Callable[[Callable[[str], None]], TensorBoard]) -> list[str]:
    log: list[str] = []
    made = board(log.append)
    ranks(made, 0, 100, start=1.0)
    made.close(60)
    ranks(made, 0, 100, start=2.0)
    made.close(60)
    return log


def test_without_the_package_there_is_one_line_of_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    (line,) = told(lambda log: TensorBoard(node(tmp_path), log))
    assert line.startswith("warning: no TensorBoard events: ")
    assert line.endswith("; add tensorboard to the image, or to the job's requirements")


def test_without_a_folder_that_stays_there_is_one_line_of_warning() -> None:
    (line,) = told(lambda log: TensorBoard(node(None), log))
    assert "keeps no snapshots" in line


def test_a_volume_that_takes_nothing_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / timeline.FOLDER).write_text("a file where a folder should be")
    told_of = [line for line in told(lambda log: TensorBoard(node(tmp_path), log)) if line.startswith("warning")]
    assert len(told_of) == 1
    assert "cannot write TensorBoard events" in told_of[0]


def test_a_month_of_seconds_is_few_points() -> None:
    assert {stride(seen) for seen in range(DENSE)} == {1}
    month = sum(seen % stride(seen) == 0 for seen in range(30 * 86400))
    assert DENSE < month < 25_000
