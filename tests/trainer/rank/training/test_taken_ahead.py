"""Loops that carry gradients over a step of their run, which no snapshot has, and others that only look like it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from kittrain import Data, Run, attach
from kittrain.rank.training.taken_ahead import CARRIED
from tests.trainer.settings import rank_of


class Loop:
    """Two epochs of eight batches."""

    def __init__(self, *, loader: bool) -> None:
        samples = TensorDataset(torch.rand(16, 2))
        self.model = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.other = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
        self.data: Any = DataLoader(samples, batch_size=2) if loader else Data(samples, batch=2)
        objects: dict[str, Any] = {} if loader else {"data": self.data}
        self.run = Run(attach(env=rank_of(run_id="run")), model=self.model, optimizer=self.optimizer, **objects)

    def batches(self) -> Iterator[int]:
        """The number of each batch, after its backward pass."""
        with self.run:
            for _ in self.run.epochs(2):
                for number, batch in self.run.enumerate(self.data):
                    (batch[0] if isinstance(batch, list) else batch.samples[0]).sum()
                    yield number

    def backward(self, factor: float = 1.0) -> None:
        (self.model(torch.rand(2, 2)).sum() * factor).backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def each_batch(loop: Loop) -> None:
    for number in loop.batches():
        loop.backward()
        if number % 2:
            loop.update()
        loop.run.step()


def once_for_two_batches(loop: Loop) -> None:
    for number in loop.batches():
        loop.backward()
        if number % 2:
            loop.update()
            loop.run.step()


def each_batch_is_a_step(loop: Loop) -> None:
    for _ in loop.batches():
        loop.backward()
        loop.update()
        loop.run.step()


def step_is_told_before_the_optimizers(loop: Loop) -> None:
    for _ in loop.batches():
        loop.backward()
        loop.run.step()
        loop.update()


def gradients_stay_until_the_next_batch(loop: Loop) -> None:
    for _ in loop.batches():
        loop.optimizer.zero_grad()
        loop.backward()
        loop.optimizer.step()
        loop.run.step()


def scale_is_too_large_at_first(loop: Loop) -> None:
    for number in loop.batches():
        loop.optimizer.zero_grad()
        loop.backward(1.0 if number else float("inf"))
        if number:
            loop.optimizer.step()
        loop.run.step()


def first_batches_are_looked_at_only(loop: Loop) -> None:
    for number in loop.batches():
        if number > 1:
            loop.backward()
            loop.update()
        loop.run.step()


def gradients_are_dropped(loop: Loop) -> None:
    """As with a loss that is not used."""
    for number in loop.batches():
        loop.backward()
        if number:
            loop.optimizer.step()
        loop.optimizer.zero_grad()
        loop.run.step()


@pytest.mark.parametrize("loader", [False, True], ids=["data", "loader"])
@pytest.mark.parametrize(
    ("train", "told"),
    [
        (each_batch, 1),
        (once_for_two_batches, 0),
        (each_batch_is_a_step, 0),
        (step_is_told_before_the_optimizers, 0),
        (gradients_stay_until_the_next_batch, 0),
        (scale_is_too_large_at_first, 0),
        (first_batches_are_looked_at_only, 0),
        (gradients_are_dropped, 0),
    ],
)
def test_gradients_that_wait_for_a_later_step_are_warned_of_once(
    train: Any, told: int, capsys: pytest.CaptureFixture[str], *, loader: bool
) -> None:
    train(Loop(loader=loader))
    assert capsys.readouterr().out.count(CARRIED) == told
