"""Training whose loss or weights are not finite: a warning, and a snapshot from before that stays."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import TensorDataset

from kittrain import Data, Run, Step, Training, World, attach
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import Manifest
from kittrain.rank.training.loss_watch import LossWatch, NonFiniteLossError
from kittrain.rank.world.order import Cursor
from tests.trainer.loops import settled
from tests.trainer.settings import rank_of


def world(folder: Path, **env: Any) -> World:
    options: dict[str, Any] = {"snapshots__every_steps": 2, "snapshots__keep": 1} | env
    return attach(
        env=rank_of(run_id="run", snapshot_dir=folder / "snapshots", progress_file=folder / "progress.json", **options)
    )


def saved(folder: Path) -> dict[int, Manifest]:
    found = [snapshot.read_manifest(path) for path in sorted((folder / "snapshots").glob("step-*"))]
    return {one.step: one for one in found}


def warning_of(folder: Path) -> str:
    text: str = json.loads((folder / "progress.json").read_text())["warning"]
    return text


def fit(
    folder: Path, loss: Callable[[nn.Module, Tensor, int], Tensor], steps: int = 10, **options: Any
) -> tuple[nn.Module, list[float]]:
    """Train for some steps of one sample; the loss also gets the step's number."""
    model = nn.Linear(2, 1)
    data, number = Data(TensorDataset(torch.rand(steps, 2)), batch=1), count(1)
    losses: list[float] = []

    def loss_of(model: nn.Module, batch: list[Tensor]) -> Tensor:
        settled(training)
        return loss(model, batch[0], next(number))

    training = Training(
        world(folder),
        model,
        torch.optim.SGD(model.parameters(), lr=0.001),
        loss_of,
        data,
        epochs=1,
        on_step=lambda step: losses.append(step.loss),
        **options,
    )
    training.fit()
    return model, losses


def square(model: nn.Module, samples: Tensor, _: int = 0) -> Tensor:
    outputs: Tensor = model(samples)
    return outputs.square().mean()


def test_the_last_finite_snapshot_stays_and_a_warning_names_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, losses = fit(tmp_path, lambda model, samples, step: square(model, samples) * (math.nan if step > 4 else 1))
    assert [math.isnan(loss) for loss in losses] == [False] * 4 + [True] * 6
    found = saved(tmp_path)
    assert {step: one.not_finite for step, one in found.items()} == {4: "", 10: "the loss of step 10 is nan"}
    lines = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(lines) == 2
    assert "the loss is nan since step 5" in lines[0]
    assert "the snapshot of step 6 is not finite: the loss of step 6 is nan" in lines[1]
    assert warning_of(tmp_path) == "the loss is nan since step 5"


def test_weights_that_are_not_finite_count_even_if_the_loss_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def loss(model: nn.Module, samples: Tensor, step: int) -> Tensor:
        """Its gradient is NaN from step 5 on, but not its value."""
        return square(model, samples) if step < 5 else (model(samples) * 0).sqrt().sum().clamp(max=1.0)

    _, losses = fit(tmp_path, lambda *given: loss(*given).nan_to_num(0.5))
    assert all(map(math.isfinite, losses))
    assert {step: one.not_finite for step, one in saved(tmp_path).items()} == {4: "", 10: "model/weight has nan"}
    assert capsys.readouterr().out.count("warning") == 1
    assert warning_of(tmp_path) == "the snapshots are not finite since step 6: model/weight has nan"


def test_steps_that_a_scaler_skips_are_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GradScaler.__init__, "__defaults__", ("cuda", 2.0**20, 2.0, 0.5, 2, True))  # overflows at first
    with patch.object(torch.optim.SGD, "step", autospec=True, side_effect=torch.optim.SGD.step) as stepped:
        fit(tmp_path, square, autocast=torch.float16)
    assert 0 < stepped.call_count < 10, "some were skipped"
    assert list(saved(tmp_path)) == [10]
    assert warning_of(tmp_path) == ""


def test_a_masked_model_is_finite(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.full((2, 2), -math.inf).triu(1))
    with Run(world(tmp_path), model=model, optimizer=torch.optim.Adam(model.parameters())) as run:
        for _ in run.steps(4):
            model(torch.ones(1, 2)).sum().backward()
            run.step()
    assert {step: one.not_finite for step, one in saved(tmp_path).items()} == {4: ""}


@pytest.mark.parametrize("every", [{"snapshots__keep_every": 3}, {"snapshots__keep_best": "min:error"}])
def test_a_run_of_its_own_loop_keeps_it_through_a_restart(tmp_path: Path, every: dict[str, Any]) -> None:
    """In the second run every loss is NaN."""
    for steps, first_bad in ((6, 5), (10, 0)):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        with Run(world(tmp_path, snapshots__every_steps=1, **every), model=model, optimizer=optimizer) as run:
            for done in run.steps(steps):
                loss = square(model, torch.ones(1, 2)) * (math.nan if done + 1 >= first_bad else 1)
                loss.backward()
                optimizer.step()
                run.step(loss)
                run.save(error=math.nan if done + 1 >= first_bad else 1.0)
    assert [step for step, one in saved(tmp_path).items() if not one.not_finite][-1] == 4


def step_of(number: int, loss: float, *, has_loss: bool = True) -> Step:
    return Step(number=number, generation=1, cursor=Cursor(), ids=[], size=1, loss=loss, has_loss=has_loss)


def test_a_loss_that_the_script_does_not_give_is_not_a_problem(tmp_path: Path) -> None:
    watch = LossWatch(world(tmp_path))
    watch.step(step_of(1, math.nan, has_loss=False))
    assert (watch.problem, watch.warning) == ("", "")


def test_a_loss_that_recovers_is_warned_about_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch = LossWatch(world(tmp_path))
    found = []
    for number, loss in enumerate([1.0, math.inf, -math.inf, 2.0, math.nan], 1):
        watch.step(step_of(number, loss))
        found.append((watch.problem, watch.warning))
    assert found == [
        ("", ""),
        ("the loss of step 2 is inf", "the loss is inf since step 2"),
        ("the loss of step 3 is -inf", "the loss is inf since step 2"),
        ("", ""),
        ("the loss of step 5 is nan", "the loss is nan since step 5"),
    ]
    assert capsys.readouterr().out.count("warning: ") == 1
    other = LossWatch(replace(world(tmp_path), env=RankEnv(rank=1, world_size=2)))
    other.step(step_of(1, math.nan))
    assert capsys.readouterr().out == "", "rank 0 says it"


def test_a_run_that_stops_ends_at_the_next_step_and_goes_on_from_a_finite_snapshot(tmp_path: Path) -> None:
    """Step 4 makes the weights NaN, which the loss of step 5 shows, read along with step 6; step 4 is a snapshot.

    Each step waits for the snapshot before it, so that the snapshots are the same on a machine of any speed.
    """
    stop = {"policy__on_non_finite": "stop"}
    starts = []
    for lr in (math.nan, 0.001):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        with (
            pytest.raises(NonFiniteLossError, match="the loss of step 5 is nan, and")
            if math.isnan(lr)
            else nullcontext(),
            Run(world(tmp_path, **stop), model=model, optimizer=optimizer) as run,
        ):
            for done in run.steps(8):
                starts.append(done)
                settled(run)
                optimizer.param_groups[0]["lr"] = lr if done == 3 else 0.001
                loss = square(model, torch.ones(1, 2))
                loss.backward()
                optimizer.step()
                run.step(loss)
    assert not saved(tmp_path)[8].not_finite
    assert starts == [*range(6), *range(2, 8)]
