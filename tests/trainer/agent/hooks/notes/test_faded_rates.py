"""A schedule that ends long before the training does is told of; one that ends with it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from kittrain.agent.hooks.notes.faded_rates import FadedRates
from kittrain.outcome.rank_output import FADED


def train(schedule: Callable[[Any], Any], steps: int, **options: Any) -> FadedRates:
    notes = FadedRates()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], **{"lr": 0.1, **options})
    planned = schedule(optimizer)
    for _ in range(steps):
        optimizer.step()
        notes.called(optimizer)
        planned.step()
    return notes


def linear(steps: int) -> Callable[[int], float]:
    return lambda step: max(0.0, 1 - step / steps)


def searched(step: int) -> float:
    """Finds a rate between a millionth and a thousand in 100 steps, and then trains."""
    return float(10 ** (step * 9 / 100 - 5) if step < 100 else 1e-4)


@pytest.mark.parametrize(
    ("schedule", "steps", "told"),
    [
        (
            lambda one: lr_scheduler.StepLR(one, 10, 0.1),
            480,
            "than a millionth of its highest at 83 % of 480 steps",
        ),
        (lambda one: lr_scheduler.LambdaLR(one, linear(100)), 400, "a millionth of its highest at 76 % of 400 steps"),
        (lambda one: lr_scheduler.LambdaLR(one, linear(400)), 400, ""),
        (lambda one: lr_scheduler.LambdaLR(one, linear(300)), 400, ""),
        (lambda one: lr_scheduler.StepLR(one, 10, 0.1), 76, ""),  # too few to tell
        (lambda one: lr_scheduler.CosineAnnealingLR(one, 10), 400, ""),
        (lambda one: lr_scheduler.OneCycleLR(one, 0.1, total_steps=401), 400, ""),
        (lambda one: lr_scheduler.LambdaLR(one, lambda step: step / 400), 400, ""),  # a long warm-up
        (lambda one: lr_scheduler.LambdaLR(one, searched), 400, ""),
        (lambda one: lr_scheduler.LambdaLR(one, lambda _: 0.0), 400, ""),  # another note has it
    ],
)
def test_a_rate_that_is_next_to_nothing_for_most_of_the_steps(
    schedule: Callable[[Any], Any], steps: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train(schedule, steps).tell()
    said = capsys.readouterr().err
    assert said.startswith(f"note: {FADED}") if told else said == ""
    assert said.rstrip().endswith(told)


def test_a_rate_on_a_device_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    train(lambda one: lr_scheduler.StepLR(one, 10, 0.1), 480, lr=torch.tensor(0.1)).tell()
    assert capsys.readouterr().err == ""


def test_one_of_several_groups_that_is_frozen_is_no_fading(capsys: pytest.CaptureFixture[str]) -> None:
    notes = FadedRates()
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.1, 0.01)]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    for step in range(400):
        notes.called(optimizer)
        if step == 40:
            optimizer.param_groups[0]["lr"] = 0.0
    notes.tell()
    assert capsys.readouterr().err == ""
