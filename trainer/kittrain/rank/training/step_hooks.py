"""Hooks around the steps of an optimizer, also of one that a library has wrapped.

Accelerate's ``AcceleratedOptimizer`` is a ``torch.optim.Optimizer`` by its class alone: it has none of the fields that
torch's hooks need, and calls the optimizer that it wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle


def before_step(optimizer: Optimizer, call: Callable[..., Any]) -> RemovableHandle:
    """As ``register_step_pre_hook``."""
    try:
        return optimizer.register_step_pre_hook(call)
    except AttributeError:
        return _wrapped(optimizer).register_step_pre_hook(call)


def after_step(optimizer: Optimizer, call: Callable[..., Any]) -> RemovableHandle:
    """As ``register_step_post_hook``."""
    try:
        return optimizer.register_step_post_hook(call)
    except AttributeError:
        return _wrapped(optimizer).register_step_post_hook(call)


def _wrapped(optimizer: Any) -> Optimizer:
    """The optimizer in a wrapper.

    Raises:
        AttributeError: there is none.
    """
    inner: Optimizer = optimizer.optimizer
    return inner
