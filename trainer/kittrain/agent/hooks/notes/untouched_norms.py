"""Models that are evaluated with batch norms that have seen no batch, as a moving average of the parameters alone has.

Such a model normalizes by the numbers that its batch norms were made with. Looked at is what ``eval()`` is called on: a
few numbers of two layers. If that is before the first step, as for an average that is kept in evaluation mode, its
parameters have to change later, unlike those of a frozen teacher. A rank says so at its end, unless the batch norms
have seen batches by then, as by ``update_bn()``. Imports no torch.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import NO_BATCH_SEEN

LOOKS: Final = 20  # evaluations
VALUES: Final = 4  # of a layer


class UntouchedNorms:
    """The evaluations of a process.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._looks = LOOKS
        self._found: list[Callable[[], str]] = []  # what tells of each model
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch evaluations.

        Args:
            module: ``torch.nn.modules.module``.
        """
        watch_calls(module.Module, "eval", self._evaluates)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        for one in [*self._found]:
            self._judge(one)
        if self._told:
            sys.stderr.write(f"note: {NO_BATCH_SEEN}{self._told}\n")

    def _evaluates(self, model: Any) -> None:
        if not self._looks or self._told:
            return
        self._looks -= 1
        norms = [one for one in model.modules() if getattr(one, "track_running_stats", False) is True]
        chosen = [*norms[:1], *norms[1:][-1:]]  # layers, as their tensors are others on another device
        if not (chosen and all(map(_is_as_made, chosen))):
            return
        kinds = ", ".join(sorted({type(one).__name__ for one in norms}))
        text = f"{len(norms)} {kinds} of {type(model).__name__}"
        before = None if self._steps() else _sample(chosen[0])

        def found() -> str:
            return text if all(map(_is_as_made, chosen)) and _sample(chosen[0]) != before else ""

        self._found.append(found)
        weakref.finalize(model, self._judge, found).atexit = False  # trained in a function, it is gone at the end

    def _judge(self, found: Callable[[], str]) -> None:
        """A model is gone, or the script ends."""
        with suppress(Exception):
            if found in self._found:
                self._found.remove(found)
                self._told = self._told or found()


def _is_as_made(norm: Any) -> bool:
    """Whether its means are 0 and its variances are 1."""
    return not norm.running_mean.any() and bool((norm.running_var == 1).all())


def _sample(norm: Any) -> Sequence[float]:
    """Some of its factors; none without any, as if they never changed."""
    return [] if norm.weight is None else norm.weight.detach()[:VALUES].tolist()
