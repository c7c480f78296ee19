"""A schedule that begins anew, and others that are continued, or were meant so."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from kittrain.agent.hooks.notes.new_schedules import NewSchedules
from kittrain.outcome.rank_output import NEW_SCHEDULE, trains_nothing

SGD: Any = type("SGD", (torch.optim.SGD,), {"load_state_dict": torch.optim.SGD.load_state_dict})
KEPT = {name: getattr(lr_scheduler.StepLR, name) for name in ("__init__", "load_state_dict")}
StepLR: Any = type("StepLR", (lr_scheduler.StepLR,), {})


def begun(kind: Any, saved: Mapping[str, Any]) -> tuple[Any, Any]:
    """An optimizer that goes on from a state, and a schedule of it."""
    optimizer = SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    optimizer.load_state_dict(saved["optimizer"])
    return optimizer, kind(optimizer, 1, gamma=0.5)


def anew(saved: Mapping[str, Any]) -> Any:
    return begun(StepLR, saved)


def made_before(saved: Mapping[str, Any]) -> Any:
    optimizer = SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    schedule = StepLR(optimizer, 1, gamma=0.5)
    optimizer.load_state_dict(state_dict=saved["optimizer"])
    return optimizer, schedule


def loaded(saved: Mapping[str, Any]) -> Any:
    optimizer, schedule = begun(StepLR, saved)
    schedule.load_state_dict(saved["schedule"])
    return optimizer, schedule


def moved_by_hand(saved: Mapping[str, Any]) -> Any:
    optimizer, schedule = begun(StepLR, saved)
    for _ in range(3):
        schedule.step()
    return optimizer, schedule


def of_another_optimizer(saved: Mapping[str, Any]) -> Any:
    optimizer, _ = begun(StepLR, {"optimizer": SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0).state_dict()})
    other, _ = begun(lambda *_, **__: None, saved)
    return other, optimizer


def of_a_new_run(_saved: Mapping[str, Any]) -> Any:
    optimizer = SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    return optimizer, StepLR(optimizer, 1, gamma=0.5)


def without_a_schedule_before(_saved: Mapping[str, Any]) -> Any:
    return begun(StepLR, {"optimizer": SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5).state_dict()})


@pytest.mark.parametrize(
    ("resume", "told"),
    [
        (anew, "StepLR at its first step, the loaded rate was 0.125"),
        (made_before, "StepLR at its first step, the loaded rate was 0.125"),
        (loaded, ""),
        (moved_by_hand, ""),
        (of_another_optimizer, ""),
        (of_a_new_run, ""),
        (without_a_schedule_before, ""),
    ],
)
def test_a_schedule_begins_anew(
    resume: Callable[[Mapping[str, Any]], Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, function in KEPT.items():  # as they are without hooks
        setattr(StepLR, name, function)
    first = SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    schedule = lr_scheduler.StepLR(first, 1, gamma=0.5)
    for _ in range(3):
        first.step()
        schedule.step()
    saved = {"optimizer": first.state_dict(), "schedule": schedule.state_dict()}
    noted = NewSchedules()
    noted.watch_optimizers(types.SimpleNamespace(Optimizer=SGD))  # type: ignore[arg-type]
    noted.watch_schedules(types.SimpleNamespace(LRScheduler=StepLR, Other=int))  # type: ignore[arg-type]
    optimizer, schedule = resume(saved)
    for _ in range(2):
        optimizer.step()
        noted.called(optimizer)
        if hasattr(schedule, "last_epoch"):
            schedule.step()
    noted.tell()
    assert capsys.readouterr().err == (f"note: {NEW_SCHEDULE}{told}\n" if told else "")
    if told:
        assert trains_nothing([f"note: {NEW_SCHEDULE}{told}\n"]) == f"{NEW_SCHEDULE}{told}"
