"""Samples of an ``IterableDataset`` that each worker of a ``DataLoader`` reads for itself: a pass has them repeatedly.

Torch gives each worker a copy of such a data set, which has to yield its own part of the samples there. Seen is what
the workers have read first: the same in all, and another batch after it. A rank says so at its end. What it costs: a
look at as many batches of a loader's first pass as it has workers, and at one more. Imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import SAME_SAMPLES
from kittrain.torch_private.early import first_batches

WORKERS: Final = range(2, 33)  # of the loaders that are looked at
LOADERS: Final = 8  # that are looked at
VALUES: Final = 256  # of each tensor, and parts of each list, that are compared
DEPTH: Final = 4  # of lists and mappings in each other


class RepeatedSamples:
    """The loaders of a process.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._looks = 0
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch the passes that have workers.

        Args:
            module: ``torch.utils.data.dataloader``.
        """
        passes, begun = first_batches(module, lambda loader: self._begins(loader, module.IterableDataset))
        watch_calls(passes, "__init__", begun)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told and self._steps():
            sys.stderr.write(f"note: {SAME_SAMPLES}{self._told}\n")

    def _begins(self, loader: Any, iterable: type[Any]) -> Callable[[Any], bool] | None:
        """What looks at the batches of a pass; None: it has no such data set, or enough were looked at."""
        workers = loader.num_workers
        if self._looks >= LOADERS or workers not in WORKERS or not isinstance(loader.dataset, iterable):
            return None
        self._looks += 1
        seen: list[object] = []
        told = f"each of {workers} has all of {type(loader.dataset).__name__}"

        def noted(batch: Any) -> bool:
            with suppress(Exception):  # batches may be of any kind
                seen.append(_values(batch))
                if len(seen) <= workers:
                    return False
                if seen[-1] != seen[0] and seen[1:workers] == seen[: workers - 1]:
                    self._told = told
            return True

        return noted


def _values(batch: Any, depth: int = DEPTH) -> object:
    """What is compared of a batch; of a kind that is unknown nothing equals it."""
    if hasattr(batch, "detach"):
        return tuple(batch.shape), batch.detach().flatten()[:VALUES].tolist()
    if isinstance(batch, str | bytes | int | float):
        return batch
    if isinstance(batch, Mapping) and depth:
        return [(key, _values(value, depth - 1)) for key, value in [*batch.items()][:VALUES]]
    if isinstance(batch, Sequence) and depth:
        return [_values(part, depth - 1) for part in batch[:VALUES]]
    return object()
