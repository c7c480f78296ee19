"""Gradients that a script zeroes too often, before a step has used them, or never.

Of a loop that accumulates, ``zero_grad()`` in each pass leaves a step nothing but its last one. Without any, each step
uses the gradients of all before it. Neither is told of a script with several optimizers, as those of a GAN, nor where
a pass is for something else than a step: it gives gradients to what is no parameter (an adversarial example), or keeps
its graph for another one. A rank says so at its end. What it costs: some additions for each pass; at the 8th, 16th,
32nd, ... step a look at the graph of a pass, or at one gradient. Imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.graph import leaves, roots_of
from kittrain.agent.hooks.looks import is_due
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import NEVER_ZEROED, ZEROED_UNUSED

DISCARDED: Final = 2  # passes of a step, at least: a step may take one to look ahead, as with SAM
STEPS: Final = 8  # that were like that, at least, before it is told
OTHERS: Final = 0.1  # of as many steps, at most, that were not


class ZeroedGradients:
    """The backward passes of a process, the steps of its optimizer, and its calls of ``zero_grad``.

    Args:
        discards: called when ``zero_grad`` discards the gradients of a pass.
    """

    def __init__(self, discards: Callable[[], None]) -> None:
        self._discards = discards
        self._optimizer = 0  # which one, by id
        self._judged = True
        self._fresh = False  # a pass has added gradients since they were zeroed or used
        self._discarded = self._most = 0  # passes of this step, and of any
        self._again = 0  # passes after one that was discarded
        self._wasteful = self._steps = self._zeroed = self._looks = self._kept = 0
        self._parameter: Any = None

    def watch_optimizers(self, module: ModuleType) -> None:
        """Watch ``zero_grad``.

        Args:
            module: ``torch.optim.optimizer``.
        """
        watch_calls(module.Optimizer, "zero_grad", self._zeroes)

    def watch_modules(self, module: ModuleType) -> None:
        """Watch ``zero_grad``.

        Args:
            module: ``torch.nn.modules.module``.
        """
        watch_calls(module.Module, "zero_grad", self._zeroes)

    def begins(self, given: Any, *, keeps_graph: bool) -> None:
        """A backward pass begins, from a tensor or several."""
        if not self._judged:
            return
        if keeps_graph:
            self._judged = False
        elif self._discarded == 1 and not self._fresh:
            self._again += 1
            self._judged = not is_due(self._again) or self._only_parameters(given)
        elif not self._fresh and not self._zeroed and is_due(self._steps, STEPS):
            self._looks += 1
            self._kept += self._has_gradient()

    def passed(self) -> None:
        """It has ended, and is no evaluation's."""
        self._fresh = True

    def called(self, optimizer: Any) -> None:
        """An optimizer has taken a step."""
        if id(optimizer) != self._optimizer:
            self._judged = self._judged and not self._optimizer
            self._optimizer = id(optimizer)
            with suppress(Exception):  # a class of the script's own may lack anything
                self._parameter = next(one for one in optimizer.param_groups[0]["params"] if one.grad is not None)
        self._steps += 1
        if self._discarded >= DISCARDED and self._fresh:
            self._wasteful += 1
            self._most = max(self._most, self._discarded + 1)
        self._discarded = 0
        self._fresh = False

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if not self._judged or self._steps < STEPS:
            return
        if self._wasteful >= STEPS and self._steps - self._wasteful <= OTHERS * self._wasteful:
            told = f"{self._wasteful} steps have used the last of up to {self._most} backward passes each"
            sys.stderr.write(f"note: {ZEROED_UNUSED}{told}\n")
        elif self._looks and self._kept == self._looks and not self._zeroed:
            sys.stderr.write(f"note: {NEVER_ZEROED}each of {self._steps} steps has used those of all before it\n")

    def _zeroes(self, *_args: object, **_kwargs: object) -> None:
        self._zeroed += 1
        if self._fresh:
            self._discarded += 1
            self._fresh = False
            self._discards()

    def _has_gradient(self) -> bool:
        with suppress(Exception):
            return self._parameter.grad is not None and bool(self._parameter.grad.any())
        return False

    @staticmethod
    def _only_parameters(given: Any) -> bool:
        with suppress(Exception):  # the script's own kinds of tensors may refuse anything
            parameter = sys.modules["torch"].nn.Parameter
            return all(isinstance(leaf, parameter) for leaf in leaves(roots_of(given)))
        return False
