"""Hooks of optimizers, also of those that are wrapped without torch's own fields, as Accelerate's are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import SGD, Optimizer

from kittrain.rank.training.step_hooks import after_step, before_step
from kittrain.rank.training.taken_ahead import BackwardPasses


class Wrapper(Optimizer):
    """As ``accelerate.optimizer.AcceleratedOptimizer``, which does not call ``Optimizer.__init__`` either."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


@pytest.mark.parametrize("wraps", [False, True])
def test_a_step_is_seen_before_and_after_it_until_the_hook_is_removed(*, wraps: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    plain = SGD([weight], lr=1.0)
    optimizer = Wrapper(plain) if wraps else plain
    seen: list[tuple[str, float]] = []
    hooks = [
        before_step(optimizer, lambda *_: seen.append(("before", weight.item()))),
        after_step(optimizer, lambda *_: seen.append(("after", weight.item()))),
    ]
    optimizer.step()
    assert seen == [("before", 1.0), ("after", 0.0)]
    for hook in hooks:
        hook.remove()
    optimizer.step()
    assert len(seen) == 2


def test_gradients_that_a_wrapped_optimizer_has_used_are_not_carried_on() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = Wrapper(SGD([weight], lr=0.1))
    passes = BackwardPasses(lambda: [weight], [optimizer])
    passes.start(between=True)
    weight.sum().backward()
    carried = [passes.carried]
    optimizer.step()
    carried.append(passes.carried)
    passes.stop()
    assert carried == [True, False]


def test_what_wraps_nothing_fails_as_torch_does() -> None:
    with pytest.raises(AttributeError):
        after_step(object.__new__(Wrapper), print)
