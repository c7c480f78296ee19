"""Steps that change nothing are told at the end; one that changes something ends the look."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kittrain.agent.hooks.notes.idle_steps import GRADIENTS, LOOKS, RATE, IdleSteps
from kittrain.outcome.rank_output import CHANGED_NOTHING


def step(optimizer: torch.optim.Optimizer, model: nn.Module, idle: IdleSteps, *, gradient: bool = True) -> None:
    optimizer.zero_grad()
    if gradient:
        model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    idle.called(optimizer)


@pytest.mark.parametrize(
    ("rate", "gradient", "told"),
    [
        (0.0, True, f"note: {CHANGED_NOTHING}{RATE} at all 3 steps\n"),
        (0.1, False, f"note: {CHANGED_NOTHING}{GRADIENTS} at all 3 steps\n"),
        (0.1, True, ""),
        (torch.tensor(0.0), True, ""),  # it is not read: on a GPU that would wait
    ],
)
def test_why_no_step_has_changed_anything(
    capsys: pytest.CaptureFixture[str], *, rate: float, gradient: bool, told: str
) -> None:
    model, idle = nn.Linear(2, 1), IdleSteps()
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(3):
        step(optimizer, model, idle, gradient=gradient)
    idle.tell()
    assert capsys.readouterr().err == told


def test_a_rate_that_grows_from_0_and_a_second_optimizer_are_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    model, idle = nn.Linear(2, 1), IdleSteps()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    step(optimizer, model, idle)
    optimizer.param_groups[0]["lr"] = 0.1
    step(optimizer, model, idle)
    optimizer.param_groups[0]["lr"] = 0.0
    step(optimizer, model, idle)
    idle.tell()
    assert capsys.readouterr().err == ""


def test_it_is_looked_at_for_a_while_only(capsys: pytest.CaptureFixture[str]) -> None:
    model, idle = nn.Linear(2, 1), IdleSteps()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for _ in range(LOOKS):
        idle.called(optimizer)
    optimizer.param_groups = None  # type: ignore[assignment]
    idle.called(optimizer)
    IdleSteps().tell()
    idle.tell()
    assert capsys.readouterr().err == f"note: {CHANGED_NOTHING}{RATE} at its first {LOOKS} steps\n"
