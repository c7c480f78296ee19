"""What a script changes in its data set after the persistent workers of a ``DataLoader`` have begun.

Each worker has a copy of its own, from the first pass on: an epoch that is set later reaches none. A rank says so at
its end. Looked at are the numbers of a data set, as a pass over a loader with such workers begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.notes.data_sets import nested
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import UNSEEN_CHANGE
from kittrain.system.by_identity import ByIdentity

PLAIN: Final = (bool, int, float)  # no texts: what is told is shown, and a text may be a secret


class UnseenChanges:
    """The loaders of a process.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._first: ByIdentity[dict[str, Any]] = ByIdentity()
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch the passes over loaders.

        Args:
            module: ``torch.utils.data.dataloader``.
        """
        watch_calls(module.DataLoader, "__iter__", self._begins)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")

    def _begins(self, loader: Any) -> None:
        if self._told or not (loader.num_workers and loader.persistent_workers):
            return
        now = dict(_values(loader.dataset))
        first = self._first.setdefault(loader, now)
        changed = [name for name, value in first.items() if now.get(name, value) is not value and now[name] != value]
        if changed and self._steps():
            name = changed[0]
            self._told = f"{UNSEEN_CHANGE}{name} is {now[name]!r:.20}, and {first[name]!r:.20} in the workers"


def _values(dataset: Any) -> Iterator[tuple[str, Any]]:
    """The numbers of a data set, and of those in it, with the class of each."""
    for one, held in nested(dataset):
        kind = type(one).__name__
        yield from ((f"{kind}.{name}", value) for name, value in held.items() if type(value) in PLAIN)
