"""Looks now and then whether the parameters that a script trains are finite: of a loss that is NaN they are not.

Of a loop of the script's own the loss is not known. Two numbers are read, since a NaN gradient makes most of them NaN.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

EVERY: Final = 10.0  # seconds: on a GPU, reading a number waits for what it has been given to do


class FiniteParameters:
    """Watches the optimizer that was called last.

    Args:
        tell: called once, as soon as a parameter is seen that is not finite.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell
        self._next = 0.0
        self._last: Callable[[], Any] = lambda: None

    def first_called(self, optimizer: Any) -> None:
        """An optimizer has taken its first step; its parameters are looked at once more when it is dropped.

        A script that trains in a function has none left at its end. What is held here goes with it.
        """
        with suppress(Exception):
            if chosen := _chosen(optimizer):
                weakref.finalize(optimizer, self._look_at, chosen).atexit = False

    def called(self, optimizer: Any) -> None:
        """An optimizer has updated its parameters."""
        if time.monotonic() < self._next or self._tell is None:
            return
        self._last = weakref.ref(optimizer)
        self.look()
        self._next = time.monotonic() + EVERY

    def look(self) -> None:
        """Look now, as at the end of the script; whatever its tensors are, they must not end it."""
        with suppress(Exception):
            if (optimizer := self._last()) is not None:
                self._look_at(_chosen(optimizer))

    def _look_at(self, parameters: Sequence[Any]) -> None:
        with suppress(Exception):
            if self._tell and not all(map(_finite, parameters)):
                self._tell()
                self._tell = None


def _chosen(optimizer: Any) -> Sequence[Any]:
    """The first and the last parameter that has a gradient, if one has; none if none can be read at once.

    Of one sample that is NaN, the last layer's has a NaN gradient, and another layer's perhaps not.
    """
    params = (one for group in optimizer.param_groups for one in group["params"])
    plain = [one for one in params if one.requires_grad and one.numel() and _readable(one)]
    found = [one for one in plain if one.grad is not None] or plain[:1]
    return [found[0], *found[1:][-1:]] if found else ()


def _finite(parameter: Any) -> bool:
    """Whether a number of it is finite."""
    return math.isfinite(abs(parameter.detach()[(0,) * parameter.dim()].item()))


def _readable(parameter: Any) -> bool:
    """Not of another kind of tensor, whose numbers may be on other ranks, and not while a CUDA graph is captured."""
    import torch  # noqa: PLC0415  the script has imported it

    if type(parameter) not in {torch.Tensor, torch.nn.Parameter}:
        return False
    kind = parameter.device.type
    return kind == "cpu" or (kind == "cuda" and not torch.cuda.is_current_stream_capturing())
