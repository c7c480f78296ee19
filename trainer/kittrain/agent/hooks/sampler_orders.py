"""The order in which a script's ``DistributedSampler`` gives samples: whether all ranks have the same, and new ones.

A sampler is looked at as a pass over it begins, which is once an epoch: a step pays nothing. Samplers of evaluations do
not count. Imports no torch.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from kittrain.outcome.rank_output import SAME_ORDER

ALONE: Final = 1  # as the copies have it in which the library's loop reads a whole order


@dataclass
class _Passes:
    """The passes over one sampler in which steps were taken: how many, and whether all had one epoch."""

    number: int = 0
    epoch: object = None
    same: bool = True


class SamplerOrders:
    """The samplers of one rank.

    Args:
        found: called with the sampler of the first step.
        steps: how many the rank has taken.
        evaluates: whether its model is in evaluation mode.
    """

    def __init__(self, found: Callable[[Any], object], steps: Callable[[], int], evaluates: Callable[[], bool]) -> None:
        self._found = found
        self._steps = steps
        self._evaluates = evaluates
        self._passes: weakref.WeakKeyDictionary[Any, _Passes] = weakref.WeakKeyDictionary()
        self._last: tuple[Callable[[], Any], object, int] | None = None  # sampler, epoch, step

    def watch(self, module: ModuleType) -> None:
        """Watch the passes over all of torch's distributed samplers.

        Args:
            module: ``torch.utils.data.distributed``.
        """
        kind = module.DistributedSampler
        begin = kind.__iter__

        @functools.wraps(begin)
        def noted_begin(sampler: Any) -> Any:
            with suppress(Exception):  # a class of the script's own may lack anything
                self._begins(sampler)
            return begin(sampler)

        kind.__iter__ = noted_begin

    def trains(self) -> None:
        """The rank takes its first step."""
        sampler = self._last and self._last[0]()
        if sampler is not None:
            with suppress(Exception):
                self._found(sampler)

    def tell(self) -> None:
        """Say at the end of the script that all passes over a shuffling sampler had the same order."""
        with suppress(Exception):
            self._count()
            same = max((one.number for one in self._passes.values() if one.same), default=0)
            if same > 1:
                sys.stderr.write(f"note: {SAME_ORDER} in all {same} passes: set_epoch was not called\n")

    def _begins(self, sampler: Any) -> None:
        if sampler.num_replicas <= ALONE or self._evaluates():
            return
        self._count()
        self._last = weakref.ref(sampler), sampler.epoch, self._steps()

    def _count(self) -> None:
        """Count the pass that ends, if steps were taken in it."""
        if self._last is None:
            return
        (reference, epoch, began), self._last = self._last, None
        sampler = reference()
        if sampler is None or not sampler.shuffle or self._steps() == began:
            return
        passes = self._passes.setdefault(sampler, _Passes(epoch=epoch))
        passes.number += 1
        passes.same = passes.same and passes.epoch == epoch
