"""Every optimizer and scheduler of torch resumes exactly, whenever its state is created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler

from tests.trainer.resumed import Learner, assert_alike

STEPS = 6
THAWS = 5  # the first step that also trains the frozen part


class Net(nn.Module):
    """One part is frozen at first, and one is never used: their parameters get no gradient."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.frozen = nn.Linear(3, 4, bias=False).requires_grad_(requires_grad=False)
        self.head = nn.Linear(4, 2, bias=False)
        self.table = nn.Embedding(5, 2, sparse=sparse)
        self.unused = nn.Linear(2, 2, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.frozen(inputs).tanh()) + self.table(torch.tensor([0, 3, 1, 3]))
        return outputs


class NetLearner(Learner):
    def train(self, until: int) -> None:
        while self.step < until:
            self.model.frozen.requires_grad_(requires_grad=self.step + 1 >= THAWS)
            super().train(self.step + 1)


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "Adadelta": lambda model: optim.Adadelta(model.parameters()),
    "Adafactor": lambda model: optim.Adafactor(model.parameters()),
    "Adagrad": lambda model: optim.Adagrad(model.parameters()),
    "Adam": lambda model: optim.Adam(model.parameters()),
    "Adam amsgrad": lambda model: optim.Adam(model.parameters(), amsgrad=True),
    "Adam fused": lambda model: optim.Adam(model.parameters(), fused=True),
    "Adam lr as a tensor": lambda model: optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False),
    "Adam of named parameters": lambda model: optim.Adam(model.named_parameters()),
    "AdamW": lambda model: optim.AdamW(model.parameters(), foreach=True),
    "Adamax": lambda model: optim.Adamax(model.parameters()),
    "ASGD": lambda model: optim.ASGD(model.parameters(), t0=2),
    "LBFGS": lambda model: optim.LBFGS([one for one in model.parameters() if one.requires_grad], max_iter=3),
    "NAdam": lambda model: optim.NAdam(model.parameters()),
    "RAdam": lambda model: optim.RAdam(model.parameters()),
    "RMSprop": lambda model: optim.RMSprop(model.parameters(), momentum=0.9, centered=True),
    "Rprop": lambda model: optim.Rprop(model.parameters()),
    "SGD": lambda model: optim.SGD(model.parameters(), lr=0.1),
    "SGD momentum": lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "SparseAdam": lambda model: optim.SparseAdam([model.table.weight]),
    "two groups": lambda model: optim.SGD(
        [
            {"params": [model.unused.weight, model.head.weight], "lr": 0.5},
            {"params": [model.table.weight], "momentum": 0.5},
        ],
        lr=0.1,
    ),
}
if hasattr(optim, "Muon"):  # torch 2.6 has none
    OPTIMIZERS["Muon"] = lambda model: optim.Muon(model.parameters())
SCHEDULERS: dict[str, Callable[[optim.Optimizer], Any]] = {
    "LambdaLR": lambda made: lr_scheduler.LambdaLR(made, lambda step: 0.9**step),
    "OneCycleLR": lambda made: lr_scheduler.OneCycleLR(made, 0.5, total_steps=STEPS + 1),
    "CyclicLR": lambda made: lr_scheduler.CyclicLR(made, 0.1, 0.5, step_size_up=2, mode="exp_range", gamma=0.9),
    "CosineAnnealingWarmRestarts": lambda made: lr_scheduler.CosineAnnealingWarmRestarts(made, 3),
    "SequentialLR": lambda made: lr_scheduler.SequentialLR(
        made, [lr_scheduler.ConstantLR(made), lr_scheduler.ExponentialLR(made, 0.9)], [2]
    ),
    "ChainedScheduler": lambda made: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(made), lr_scheduler.ExponentialLR(made, 0.9)]
    ),
}


def test_all_of_torchs_optimizers_are_covered() -> None:
    all_of_them = {name for name in optim.__all__ if isinstance(getattr(optim, name, None), type)} - {"Optimizer"}
    assert {name.partition(" ")[0] for name in OPTIMIZERS} >= all_of_them


@pytest.mark.parametrize("saved_at", [1, 3, 5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_optimizer_equals_an_uninterrupted_one(tmp_path: Path, name: str, saved_at: int) -> None:
    def learner(folder: Path) -> NetLearner:
        torch.manual_seed(0)
        return NetLearner(folder, Net(sparse=name == "SparseAdam"), OPTIMIZERS[name])

    assert_resumes(learner, tmp_path, saved_at)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_resumed_scheduler_equals_an_uninterrupted_one(tmp_path: Path, name: str) -> None:
    def learner(folder: Path) -> NetLearner:
        torch.manual_seed(0)
        return NetLearner(folder, Net(), OPTIMIZERS["SGD momentum"], schedule=SCHEDULERS[name])

    assert_resumes(learner, tmp_path, 3)


def assert_resumes(learner: Callable[[Path], Any], folder: Path, saved_at: int) -> None:
    undisturbed = learner(folder / "undisturbed")
    undisturbed.train(STEPS)
    first = learner(folder / "run")
    first.train(saved_at)
    first.save()
    second = learner(folder / "run")
    assert second.step == saved_at
    second.train(STEPS)
    assert_alike(second, undisturbed)
