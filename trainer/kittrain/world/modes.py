"""Modules in evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Modules, and all below them, in evaluation mode; then each is in its own mode again, as a frozen part is."""
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
