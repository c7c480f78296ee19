"""Models whose batch norms are as they were made when they are evaluated."""

from __future__ import annotations

import copy
import itertools
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

from kittrain.agent.hooks.notes.untouched_norms import LOOKS, UntouchedNorms
from kittrain.outcome.rank_output import NO_BATCH_SEEN

DATA = torch.randn(8, 3)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def evaluated(model: nn.Module, steps: int = 9, then: Callable[[nn.Module], object] = lambda _: None) -> UntouchedNorms:
    notes = UntouchedNorms(lambda: steps)
    notes._evaluates(model.eval())
    then(model)
    return notes


def trained() -> nn.Module:
    model = net()
    model(DATA)
    return model


def averages(model: nn.Module) -> None:
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.1)


def moved(model: nn.Module) -> None:
    """Its tensors are others, as on another device, and loaded."""
    state = {name: value + 0.5 for name, value in model.state_dict().items()}
    model.to(torch.float64).load_state_dict(state)


def updated(model: nn.Module) -> None:
    update_bn([DATA], model)


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        (lambda: evaluated(AveragedModel(net())), "1 BatchNorm1d of AveragedModel"),
        (lambda: evaluated(nn.Sequential(net(), net())), "2 BatchNorm1d of Sequential"),
        (lambda: evaluated(net(), steps=0, then=averages), "1 BatchNorm1d of Sequential"),  # kept in that mode
        (lambda: evaluated(net(), steps=0), ""),  # a teacher
        (lambda: evaluated(trained()), ""),
        (lambda: evaluated(AveragedModel(trained())), ""),
        (lambda: evaluated(copy.deepcopy(net()), then=updated), ""),
        (lambda: evaluated(net(), then=moved), ""),
        (lambda: evaluated(nn.Linear(3, 1)), ""),
        (lambda: evaluated(nn.BatchNorm1d(3, track_running_stats=False)), ""),
        (lambda: evaluated(nn.InstanceNorm1d(3)), ""),
    ],
)
def test_batch_norms_that_have_seen_no_batch(
    notes: Callable[[], UntouchedNorms], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notes().tell()  # the model is gone by then
    assert capsys.readouterr().err == (f"note: {NO_BATCH_SEEN}{told}\n" if told else "")


def test_one_that_lives_is_judged_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    notes = evaluated(model)
    updated(model)
    notes.tell()
    assert capsys.readouterr().err == ""


def test_old_weights_without_a_count_are_as_they_were_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    model[1].running_mean += 0.5  # type: ignore[index]
    evaluated(model).tell()
    assert capsys.readouterr().err == ""


def test_few_evaluations_are_looked_at() -> None:
    looked = itertools.count()
    model = types.SimpleNamespace(modules=lambda: [next(looked)])
    notes = UntouchedNorms(lambda: 9)
    for _ in range(LOOKS + 9):
        notes._evaluates(model)
    assert next(looked) == LOOKS
