"""Evaluations of a model that is still in training mode: dropout leaves out units, batch norms learn what they see.

They are passes of a wrapped model without gradients, after steps, in a script that never calls ``eval()``. One that
does so somewhere is not told: it may estimate an uncertainty by dropout, or the statistics of its batch norms. A rank
says so at its end. What it costs: a comparison in each pass of the wrapper, and nothing once a script compiles
anything, as a compiler would trace it. Imports no torch.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import STILL_TRAINS

PASSES: Final = 2  # at least: one may be to see whether the model takes such a batch
LAYERS: Final = ("Dropout", "AlphaDropout", "FeatureAlphaDropout", "BatchNorm", "SyncBatchNorm")  # names begin so


class TrainingEvaluations:
    """The passes of a process's wrapped models without gradients.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._passes = 0
        self._layers = ""  # that differ between the modes
        self._evaluates = False
        self._restore: Callable[[], None] = lambda: None

    def watch_modules(self, module: ModuleType) -> None:
        """Watch ``eval``.

        Args:
            module: ``torch.nn.modules.module``.
        """
        watch_calls(module.Module, "eval", self._evaluated)

    def watch(self, module: ModuleType) -> None:
        """Watch the passes of what is wrapped.

        Args:
            module: ``torch.nn.parallel.distributed``.
        """
        kind = module.DistributedDataParallel
        forward = kind.forward
        gradients = sys.modules["torch"].is_grad_enabled

        @in_place_of(forward)
        def noted_forward(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            if not gradients() and wrapper.training:
                self._passes_without(wrapper)
            return forward(wrapper, *args, **kwargs)

        kind.forward = noted_forward

        def restore() -> None:
            if kind.forward is noted_forward:
                kind.forward = forward

        self._restore = restore

    def watch_compiler(self, module: ModuleType) -> None:
        """Watch ``compile``, which is called before anything is traced.

        Args:
            module: ``torch``.
        """
        watch_calls(module, "compile", lambda *_args, **_kwargs: self._restore())

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._passes >= PASSES and self._layers and not self._evaluates:
            sys.stderr.write(f"note: {STILL_TRAINS}{self._passes} passes with {self._layers}\n")

    def _evaluated(self, _model: Any) -> None:
        self._evaluates = True

    def _passes_without(self, wrapper: Any) -> None:
        if self._evaluates or not self._steps():
            return
        self._passes += 1
        if self._passes == 1:
            with suppress(Exception):  # a class of the script's own may lack anything
                kinds = Counter(type(one).__name__ for one in wrapper.modules() if _differs(one))
                self._layers = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def _differs(layer: Any) -> bool:
    """Whether it does something else in evaluation mode, and is not in that."""
    known = layer.training and type(layer).__name__.startswith(LAYERS)
    return known and getattr(layer, "p", 1) > 0 and getattr(layer, "track_running_stats", True)
