"""Parameters that are not finite are told of, at what cost, and without touching tensors that are not plain."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from kittrain.agent.hooks.steps import finite_parameters
from kittrain.agent.hooks.steps.finite_parameters import FiniteParameters
from tests.trainer.hooked import run_warm

TRAIN = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
for step in range(1, 6):
    optimizer.zero_grad()
    (model(torch.ones(1, 2)).sum() * (float("nan") if step == {bad} else 1.0)).backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "seen"), [(1, 1), (3, 5), (9, 0)])  # at the first step, at the end, never
def test_a_script_that_trains_nan_is_seen(tmp_path: Path, bad: int, seen: int) -> None:
    assert run_warm(tmp_path, TRAIN.format(optimizer="Adam", bad=bad)).not_finite == seen


@pytest.mark.slow
def test_a_script_that_trains_nan_in_a_function_is_seen_when_that_ends(tmp_path: Path) -> None:
    body = TRAIN.format(optimizer="Adam", bad=3).replace("\n", "\n    ")
    assert run_warm(tmp_path, f"def main():{body}pass\nmain()\n").not_finite == 5


def watched(parameter: torch.Tensor) -> tuple[FiniteParameters, torch.optim.Optimizer, list[bool]]:
    told: list[bool] = []
    return FiniteParameters(lambda: told.append(True)), torch.optim.SGD([parameter], lr=0.1), told


def test_it_is_told_once_and_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []

    def good_once(one: object) -> bool:
        reads.append(one)
        return len(reads) < 2

    monkeypatch.setattr(finite_parameters, "_finite", good_once)
    finite, optimizer, told = watched(nn.Parameter(torch.ones(1)))
    for _ in range(1000):
        finite.called(optimizer)
    assert (len(reads), told) == (1, [])
    finite.look()
    finite.look()
    assert (len(reads), told) == (2, [True])


def test_an_optimizer_is_looked_at_when_it_is_dropped_and_no_parameter_is_held_longer() -> None:
    parameter = nn.Parameter(torch.full((2,), float("nan")))
    finite, optimizer, told = watched(parameter)
    held = weakref.ref(parameter)
    finite.first_called(optimizer)
    del parameter, optimizer
    gc.collect()
    assert told == [True]
    assert held() is None


class Elsewhere(torch.Tensor):
    """A tensor whose numbers are on other ranks."""

    def __getitem__(self, _: object) -> torch.Tensor:
        raise AssertionError("reading it is a collective")


@pytest.mark.parametrize(
    "parameter",
    [
        torch.full((2,), float("nan")).as_subclass(Elsewhere).requires_grad_(),
        nn.Parameter(torch.empty(0)),
        nn.Parameter(torch.empty(2, device="meta")),
        nn.Parameter(torch.ones(2, dtype=torch.complex64)),
        nn.Parameter(torch.tensor(1.0)),
    ],
    ids=["another kind", "empty", "meta", "complex", "a number"],
)
def test_other_tensors_are_left_alone(parameter: torch.Tensor) -> None:
    finite, optimizer, told = watched(parameter)
    finite.called(optimizer)
    assert not told


def test_an_infinite_complex_number_is_not_finite() -> None:
    finite, optimizer, told = watched(nn.Parameter(torch.full((2,), complex(float("inf"), 0.0))))
    finite.called(optimizer)
    assert told == [True]
