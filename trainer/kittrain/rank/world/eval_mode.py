"""Context manager that sets modules to evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Set modules and their submodules to evaluation mode; on exit, each gets its own former mode back."""
    roots = list(modules)
    before = [(module, module.training) for root in roots for module in root.modules()]
    for root in roots:
        root.eval()
    try:
        yield
    finally:
        for module, training in before:  # parents come first
            if module.training != training:
                module.train(training)
