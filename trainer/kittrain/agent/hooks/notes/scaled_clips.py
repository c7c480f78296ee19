"""Gradients that are clipped while ``GradScaler`` has scaled them: nearly nothing is left of them after the step.

A script calls ``unscale_`` before it clips. One that scales the limit as well is right, too, as is one that clips to no
limit, to see the norm. A rank says so at its end. What it costs: a few microseconds for each step of a scaler, whose
scale is read at the 1st, 2nd, 4th, 8th, ... one; without one, a comparison for each call that clips. Imports no torch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.looks import is_due
from kittrain.agent.hooks.watched_calls import replace, watch_calls
from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import CLIPPED_SCALED

STEPS: Final = 10  # of scalers, at least, before it is told
MOST: Final = 0.9  # of them, from which on it is told
MUCH: Final = 100  # times a limit, and 1: a scale from which on next to nothing is left


class ScaledClips:
    """The scalers of a process, and the calls that clip gradients."""

    def __init__(self) -> None:
        self._unscale: Callable[..., Any] | None = None
        self._scaled = False  # a loss, since the last step
        self._unscaled = False  # gradients, since then
        self._limit = math.inf  # that scaled gradients were clipped to
        self._scale = 1.0
        self._steps = self._off = 0
        self._example = ""

    def watch_scalers(self, module: ModuleType) -> None:
        """Watch what scalers scale, and their steps.

        Args:
            module: ``torch.amp.grad_scaler``.
        """
        self._unscale = watch_calls(module.GradScaler, "unscale_", self._unscales)
        watch_calls(module.GradScaler, "scale", self._scales)
        watch_calls(module.GradScaler, "step", self._stepped)

    def watch_clips(self, module: ModuleType) -> None:
        """Watch calls that clip.

        Args:
            module: ``torch.nn.utils.clip_grad``.
        """
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            replace(module, name, self._noted(getattr(module, name)))

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._steps >= STEPS and self._off >= MOST * self._steps:
            sys.stderr.write(f"note: {CLIPPED_SCALED}in {self._off} of {self._steps} steps, {self._example}\n")

    def _scales(self, scaler: Any, *_args: object, **_kwargs: object) -> None:
        if not self._scaled and self._judged(scaler):
            self._scaled, self._unscaled, self._limit = True, False, math.inf

    def _unscales(self, *_args: object, **_kwargs: object) -> None:
        self._unscaled = True

    def _noted(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        @in_place_of(clip)
        def noted_clip(*args: Any, **kwargs: Any) -> Any:
            result = clip(*args, **kwargs)
            if self._scaled and not self._unscaled:
                self._clips(*args, **kwargs)  # in no `with`: older versions of torch do not compile it
            return result

        return noted_clip

    def _clips(self, *args: object, **named: object) -> None:
        limit = args[1] if len(args) > 1 else named.get("max_norm", named.get("clip_value"))
        if isinstance(limit, int | float):  # a tensor: reading it may wait for a GPU
            self._limit = min(self._limit, limit)

    def _stepped(self, scaler: Any, *_args: object, **_kwargs: object) -> None:
        """A step has ended, and has unscaled what was scaled."""
        self._scaled = False
        if not self._judged(scaler):
            return
        self._steps += 1
        if is_due(self._steps):
            self._scale = scaler.get_scale()
        if self._scale >= MUCH * max(self._limit, 1):
            self._off += 1
            self._example = f"to {self._limit:g} at a scale of {self._scale:g}"

    def _judged(self, scaler: Any) -> bool:
        """Whether it scales anything, and has no other way to unscale it, as that of sharded models."""
        return scaler.is_enabled() and type(scaler).unscale_ is self._unscale
