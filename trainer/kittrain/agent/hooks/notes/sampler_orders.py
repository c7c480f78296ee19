"""The order in which a script's ``DistributedSampler`` gives samples: whether all ranks have the same, and new ones.

A sampler is looked at as a pass over it begins, which is once an epoch: a step pays nothing. Samplers of evaluations do
not count. Imports no torch.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, NamedTuple

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import REPLAYED, SAME_ORDER
from kittrain.system.by_identity import ByIdentity

EPOCHS: Final = 2  # that were set after the last pass has begun, without another one
ALONE: Final = 1  # as the copies have it in which the library's loop reads a whole order


@dataclass
class _Passes:
    """The passes over one sampler, which may be gone at the end of the script.

    Attributes:
        number: of those in which steps were taken.
        epoch: of the first of these.
        same: whether all had that one.
        unread: the epochs that were set after the last pass has begun, and how many steps there were then.
    """

    number: int = 0
    epoch: object = None
    same: bool = True
    unread: dict[object, int] = field(default_factory=dict)


class _Last(NamedTuple):
    """The pass that was begun last: over what, with which epoch, and after how many steps."""

    sampler: Callable[[], Any]
    passes: _Passes | None
    epoch: object
    steps: int


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
        self._passes: ByIdentity[_Passes] = ByIdentity()
        self._all: list[_Passes] = []
        self._last: _Last | None = None

    def watch(self, module: ModuleType) -> None:
        """Watch the passes over all of torch's distributed samplers.

        Args:
            module: ``torch.utils.data.distributed``.
        """
        kind = module.DistributedSampler
        begin = kind.__iter__

        @in_place_of(begin)
        def noted_begin(sampler: Any) -> Any:
            with suppress(Exception):  # a class of the script's own may lack anything
                self._begins(sampler)
            return begin(sampler)

        kind.__iter__ = noted_begin
        watch_calls(kind, "set_epoch", self._chosen)

    def trains(self) -> None:
        """The rank takes its first step."""
        sampler = self._last and self._last.sampler()
        if sampler is not None:
            with suppress(Exception):
                self._found(sampler)

    def tell(self) -> None:
        """Say at the end of the script that all passes over a shuffling sampler had the same order."""
        with suppress(Exception):
            self._count()
            same = max((one.number for one in self._all if one.same), default=0)
            if same > 1:
                sys.stderr.write(f"note: {SAME_ORDER} in all {same} passes: set_epoch was not called\n")
            replayed = max(map(self._replays, self._all), default=0)
            if replayed:
                sys.stderr.write(
                    f"note: {REPLAYED}, and set_epoch called for {replayed} more epochs: its batches came again\n"
                )

    def _replays(self, passes: _Passes) -> int:
        """The epochs that were set although none was read, with steps after each; 0: too few."""
        told = {step for step in passes.unread.values() if step < self._steps()}
        return len(told) if passes.number == 1 and len(told) >= EPOCHS else 0

    def _chosen(self, sampler: Any, *_args: object, **_kwargs: object) -> None:
        """An epoch was set: that of another pass than the one that was begun last, perhaps."""
        last = self._last
        if last and last.passes and sampler is last.sampler() and sampler.epoch != last.epoch:
            last.passes.unread.setdefault(sampler.epoch, self._steps())

    def _of(self, sampler: Any) -> _Passes:
        passes = self._passes.get(sampler)
        if passes is None:
            self._passes[sampler] = passes = _Passes()
            self._all.append(passes)
        return passes

    def _begins(self, sampler: Any) -> None:
        if sampler.num_replicas <= ALONE:
            return
        if self._evaluates():  # or was left in that mode by the evaluation before: steps may yet come
            if known := self._passes.get(sampler):
                known.unread.clear()
            return
        self._count()
        passes = self._of(sampler) if sampler.shuffle else None
        if passes:
            passes.unread.clear()
        self._last = _Last(weakref.ref(sampler), passes, sampler.epoch, self._steps())

    def _count(self) -> None:
        """Count the pass that ends, if steps were taken in it."""
        last, self._last = self._last, None
        if last is None or last.passes is None or self._steps() == last.steps:
            return
        passes = last.passes
        if not passes.number:
            passes.epoch = last.epoch
        passes.number += 1
        passes.same = passes.same and passes.epoch == last.epoch
