"""Whether a script that uses no optimizer of torch changes its parameters between backward passes.

A script may update them itself (``p.data.add_(p.grad, alpha=-lr)``), or use gradients for something else. So a few
values of a few parameters are compared, at the 4th, 8th, 16th, ... backward pass: no step in between pays for it.
Imports no torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from kittrain.agent.hooks.graph import leaves, roots_of
from kittrain.agent.hooks.looks import is_due

FIRST: Final = 2  # backward pass before which the values are remembered; an optimizer is usually called before it
PARAMETERS: Final = 4  # that are compared
VALUES: Final = 64  # of each


class HandMadeSteps:
    """The backward passes of one rank."""

    def __init__(self) -> None:
        self.count = 0  # passes up to the last that was found to use other parameters than the first ones did
        self.size = 0  # bytes of the parameters that are compared
        self._passes = 0
        self._values: list[tuple[Any, Sequence[float]]] = []  # each parameter's weak reference, and its values

    def backward_begins(self, roots: Any) -> bool:
        """Note a pass from a tensor, or several; returns whether ``count`` has changed."""
        self._passes += 1
        if not is_due(self._passes, FIRST):
            return False
        with suppress(Exception):  # the script's own kinds of tensors may refuse anything
            if self._passes == FIRST:
                found = list(islice(filter(_is_plain, leaves(roots_of(roots))), PARAMETERS))
                self.size = sum(one.nbytes for one in found)
                self._values = [(weakref.ref(one), _sample(one)) for one in found]
            elif any(one is not None and _sample(one) != before for one, before in self._alive()):
                self.count = self._passes
                return True
        return False

    def _alive(self) -> Iterator[tuple[Any, Sequence[float]]]:
        return ((reference(), before) for reference, before in self._values)


def _is_plain(tensor: Any) -> bool:
    """Whether its values can be read without asking other ranks, as those of a DTensor."""
    return type(tensor.detach()).__qualname__ == "Tensor" and not tensor.is_meta


def _sample(tensor: Any) -> Sequence[float]:
    flat = tensor.detach().reshape(-1)
    values: Sequence[float] = flat[:: max(1, flat.numel() // VALUES)].tolist()
    return values
