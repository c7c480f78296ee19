"""Models that are evaluated with batch norms that have seen no batch, as a moving average of the parameters alone has.

Such a model normalizes by the numbers that its batch norms were made with. Looked at is what ``eval()`` is called on,
after steps: a few numbers of two layers. A rank says so at its end, unless the batch norms have seen batches by then,
as by ``update_bn()``. Imports no torch.
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


class UntouchedNorms:
    """The evaluations of a process.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._looks = LOOKS
        self._found: tuple[str, Sequence[Any]] | None = None  # what is told, and the layers' means and variances
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch evaluations.

        Args:
            module: ``torch.nn.modules.module``.
        """
        watch_calls(module.Module, "eval", self._evaluates)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        with suppress(Exception):
            self._judge()
        if self._told:
            sys.stderr.write(f"note: {NO_BATCH_SEEN}{self._told}\n")

    def _evaluates(self, model: Any) -> None:
        if not (self._looks and self._steps()) or self._found:
            return
        self._looks -= 1
        norms = [one for one in model.modules() if getattr(one, "track_running_stats", False) is True]
        chosen = [*norms[:1], *norms[1:][-1:]]
        values = [value for one in chosen for value in (one.running_mean, one.running_var)]
        if norms and _as_made(values):
            kinds = ", ".join(sorted({type(one).__name__ for one in norms}))
            self._found = f"{len(norms)} {kinds} of {type(model).__name__}", values
            weakref.finalize(
                model, self._judge
            ).atexit = False  # a script that trains in a function has none at its end

    def _judge(self) -> None:
        """The model is gone, or the script ends."""
        if self._found and not self._told:
            text, values = self._found
            self._told = text if _as_made(values) else ""


def _as_made(values: Sequence[Any]) -> bool:
    """Whether means are 0 and variances are 1."""
    return all(not value.any() for value in values[::2]) and all((value == 1).all() for value in values[1::2])
