"""The learning rate rises, falls to zero, and stays there."""

from __future__ import annotations

import pytest
import torch

from kittrain.workloads.schedule import factor, warmup_and_decay


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    factors = [factor(step, steps=100) for step in range(105)]
    assert factors[0] == pytest.approx(0.1)
    assert factors.index(max(factors)) == 9
    assert factors[99] == pytest.approx(0.01)
    assert factors[100:] == [0] * 5
    assert factor(0, steps=1) == 1


def test_a_resumed_run_with_more_steps_decays_until_their_end() -> None:
    def optimizer() -> torch.optim.Optimizer:
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)

    first = warmup_and_decay(optimizer(), steps=10)
    second = warmup_and_decay(optimizer(), steps=20)
    first.last_epoch = 10
    second.load_state_dict(first.state_dict())
    second.optimizer.step()
    second.step()
    assert second.get_last_lr() == [factor(11, steps=20)]
