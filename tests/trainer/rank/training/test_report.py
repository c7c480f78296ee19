"""Reports of rank 0: lines, and the progress file."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.folder.chain import Committed
from kittrain.rank.training import report
from kittrain.rank.training.report import Plan, ProgressReporter, Speed, format_duration
from kittrain.rank.training.step_sync import Step
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.reports import progress_in

ORDER = Order(samples=10, batch=4)
STEP = Step(number=4, generation=1, cursor=Cursor(1, 4), ids=[], size=4, epoch=1, loss=0.25)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report every step."""
    monkeypatch.setattr(report, "TICK_SECONDS", 0.0)
    monkeypatch.setattr(report, "LINE_SECONDS", 0.0)


def reporter(file: Path | None = None, rank: int = 0) -> ProgressReporter:
    world = World(env=RankEnv(rank=rank, world_size=2, progress_file=file), device=torch.device("cpu"))
    return ProgressReporter(world, Plan(epochs=3, steps_per_epoch=ORDER.steps_per_epoch))


def read(file: Path) -> dict[str, Any]:
    facts: dict[str, Any] = progress_in(file)
    return facts


@pytest.mark.usefixtures("always")
def test_the_progress_file(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    began = time.time()
    with reporter(file) as reporting:
        reporting.begin(3)
        reporting.snapshot(Committed(step=3, seconds=1.5, stall=0.25, size=4096))
        reporting.not_finite_steps = 2
        reporting.step(STEP)
        facts = read(file)
        reporting.epoch(1, {"accuracy": 0.5, "perplexity": math.nan})
    speed, eta = facts.pop("samples_per_second"), facts.pop("eta_seconds")
    assert eta == pytest.approx(5 * 4 / speed, rel=0.1)  # steps of 4 samples
    assert began <= facts.pop("resumed_at") <= time.time()
    assert facts == {
        "step": 4,
        "total_steps": 9,
        "epoch": 2,
        "epochs": 3,
        "loss": 0.25,
        "steps_per_second": None,
        "snapshot_step": 3,
        "snapshot_time": None,
        "writing_step": None,
        "writing_since": None,
        "resumed_from": 3,
        "snapshot_seconds": 1.5,
        "snapshot_stall_seconds": 0.25,
        "metrics": {},
        "warning": "",
        "samples": 4,
        "not_finite_steps": 2,
        "snapshot_bytes": 4096,
        "not_whole": "",
    }
    assert read(file)["metrics"] == {"accuracy": 0.5, "perplexity": None}
    assert [entry.name for entry in tmp_path.iterdir()] == ["progress.json"]


@pytest.mark.usefixtures("always")
def test_the_first_snapshot_that_is_not_finite_is_in_the_progress_file(tmp_path: Path) -> None:
    found = []
    with reporter(tmp_path / "progress.json") as reporting:
        for step, problem in ((1, ""), (2, "w has nan"), (3, "b has inf"), (4, ""), (5, "b has inf")):
            reporting.snapshot(Committed(step=step, not_finite=problem))
            reporting.step(replace(STEP, number=step))
            found.append(read(tmp_path / "progress.json")["warning"])
        reporting.warning = "the loss is nan"
        reporting.step(STEP)
        assert read(tmp_path / "progress.json")["warning"] == "the loss is nan"
    since = "the snapshots are not finite since step"
    assert found == ["", f"{since} 2: w has nan", f"{since} 2: w has nan", "", f"{since} 5: b has inf"]


@pytest.mark.usefixtures("always")
def test_snapshots_that_fail_are_told_until_one_succeeds(tmp_path: Path) -> None:
    found = []
    with reporter(tmp_path / "progress.json") as reporting:
        for committed in (
            Committed(step=1),
            Committed(step=1, failed="no snapshot at step 2: full"),
            Committed(step=3),
        ):
            reporting.snapshot(committed)
            reporting.step(STEP)
            facts = read(tmp_path / "progress.json")
            found.append((facts["snapshot_step"], facts["warning"]))
    assert found == [(1, ""), (1, "no snapshot at step 2: full"), (3, "")]


@pytest.mark.usefixtures("always")
def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter() as reporting:
        reporting.step(STEP)
        reporting.epoch(1, {"accuracy": 0.5})
    step, epoch = capsys.readouterr().out.splitlines()
    assert step.startswith("epoch 2/3 step 1/3 loss 0.2500 ")
    assert " samples/s eta 0:00:0" in step
    assert epoch == "epoch 2/3 done loss 0.2500 accuracy 0.5000"


def test_few_lines_and_writes_for_many_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "progress.json"
    with reporter(file) as reporting:
        reporting.step(STEP)
        assert read(file)["step"] == 4  # the first step is written at once
        reporting.step(replace(STEP, number=5))
        assert read(file)["step"] == 4
    assert read(file)["step"] == 5  # and the last one at the end
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("always")
def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with reporter() as reporting:
        reporting.begin(3)
        reporting.step(STEP)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "4/9" in captured.err


@pytest.mark.usefixtures("always")
def test_other_ranks_report_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reporter(tmp_path / "progress.json", rank=1) as reporting:
        reporting.step(STEP)
        reporting.epoch(0, {"accuracy": 1.0})
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_written_does_not_stop_training(tmp_path: Path) -> None:
    with reporter(tmp_path / "missing" / "progress.json") as reporting:
        reporting.step(STEP)


def test_speed_is_the_average_of_the_last_updates() -> None:
    speed = Speed(now=100.0)
    assert speed.rate == 0
    for second in range(1, 200):
        speed.count(10 if second < 100 else 30)
        speed.tick(100.0 + second)
    assert speed.rate == pytest.approx(30)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00:00"), (42.4, "0:00:42"), (3725, "1:02:05"), (math.inf, "-")])
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_what_resumes_after_the_last_step_is_reported_although_no_step_follows(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    with reporter(file) as reporting:
        reporting.snapshot(Committed(step=9))
        reporting.begin(9, epoch=3)
    facts = read(file)
    assert (facts["step"], facts["total_steps"], facts["epoch"], facts["epochs"]) == (9, 9, 3, 3)
    assert (facts["snapshot_step"], facts["resumed_from"], facts["resumed_at"]) == (9, 9, None)


def test_a_start_from_nothing_reports_no_progress_before_its_first_step(tmp_path: Path) -> None:
    with reporter(tmp_path / "progress.json") as reporting:
        reporting.begin(0, epoch=0)
    assert not (tmp_path / "progress.json").exists()


def test_a_snapshot_is_shown_from_its_beginning_until_it_is_published_or_has_failed(tmp_path: Path) -> None:
    file, began = tmp_path / "progress.json", time.time()

    def writing() -> int | None:
        reporting.flush()
        step: int | None = read(file)["writing_step"]
        return step

    with reporter(file) as reporting:
        reporting.step(STEP)
        reporting.saving(4)
        assert began <= read(file)["writing_since"] <= time.time(), "written at once: training may wait now"
        reporting.snapshot(Committed(step=3, time=5.0))
        assert (writing(), read(file)["snapshot_time"]) == (4, 5.0), "an earlier one"
        reporting.snapshot(Committed(step=4, time=6.0))
        assert writing() is None
        reporting.saving()
        assert writing() == STEP.number
        reporting.snapshot(Committed(step=4, time=6.0, failed="no snapshot at step 8: full"))
        assert writing() is None
