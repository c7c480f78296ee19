"""What a loop of the script's own changes besides steps, and between which of its places: to undo it, or to find it.

A place is where the loop asks what comes next. Before ``run.step()`` a loop may set an optimizer's options or a
scaler's scale; after it, it may move schedulers, and it may leave a mode, or hooks, behind when a round ends in it.

Why: decision 60.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from kittrain.rank.snapshots.files.layout import local_part
from kittrain.torch_private.hooks import NewHooks

PARAMETERS: Final = "params"  # of a parameter group: all else are options, but their names
NAMES: Final = "param_names"
WORD: Final = 8  # bytes

Options = dict[str, Any]


class AtPlace:
    """Options of optimizers, scales and schedulers, as they are at a place.

    Args:
        optimizers: whose parameter groups are kept, and how many they are.
        scalers: with their scales.
        schedulers: with all that they know.
    """

    def __init__(
        self, optimizers: Sequence[Optimizer], scalers: Sequence[GradScaler], schedulers: Sequence[LRScheduler] = ()
    ) -> None:
        self._optimizers = optimizers
        self._options = [[options(group) for group in one.param_groups] for one in optimizers]
        self._scalers = [(one, one.state_dict()) for one in scalers] if scalers else ()
        self._schedulers = [(one, copy.deepcopy(one.state_dict())) for one in schedulers] if schedulers else ()

    def restore(self) -> None:
        """Undo what was changed since."""
        for scheduler, state in self._schedulers:
            scheduler.load_state_dict(copy.deepcopy(state))
        for scaler, state in self._scalers:
            if state:
                scaler.load_state_dict(state)
        for optimizer, kept in zip(self._optimizers, self._options, strict=True):
            for group in optimizer.param_groups[len(kept) :]:
                for one in group[PARAMETERS]:
                    optimizer.state.pop(one, None)
            del optimizer.param_groups[len(kept) :]
            for group, values in zip(optimizer.param_groups, kept, strict=True):
                _set(group, values)


def options(group: Mapping[str, Any]) -> Options:
    """A copy of a parameter group without its parameters. At each step, so it looks only where values may change."""
    copied = dict(group)
    del copied[PARAMETERS]
    if type(copied.get("lr")) is not Tensor:
        return copied
    return {name: copy.deepcopy(value) for name, value in copied.items() if name != NAMES}


def _set(group: Options, values: Options) -> None:
    for name in group.keys() - values.keys() - {PARAMETERS, NAMES}:
        del group[name]
    for name, value in values.items():
        if isinstance(now := group.get(name), Tensor):  # what a compiled optimizer reads
            now.copy_(value)
        else:
            group[name] = copy.copy(value)


class Moves:
    """Tells whether schedulers have moved, and options of optimizers that have none.

    Args:
        optimizers: of the run.
        schedulers: of the run.
    """

    def __init__(self, optimizers: Iterable[Optimizer], schedulers: Sequence[LRScheduler]) -> None:
        scheduled = {id(one.optimizer) for one in schedulers}
        self._by_hand = [one for one in optimizers if id(one) not in scheduled]
        self._schedulers = schedulers
        self._count = len(schedulers)

    def now(self) -> list[Any]:
        """Where they are."""
        found: list[Any] = [_place(one) for one in self._schedulers]
        found += [[options(group) for group in one.param_groups] for one in self._by_hand]
        return found

    def scheduled(self, places: Sequence[Any]) -> Sequence[Any]:
        """Of what ``now`` has returned, the schedulers'."""
        return places[: self._count]


def _place(scheduler: LRScheduler) -> object:
    """Not its epoch alone: one that is given a part of an epoch stays in it, and one of several has none."""
    return getattr(scheduler, "last_epoch", None), scheduler.get_last_lr()


class Round:
    """What a round begins with, in this process, and a loop that is cut short may leave otherwise.

    Args:
        modules: of the run.
        optimizers: of the run.
        scalers: of the run.
    """

    def __init__(
        self, modules: Sequence[nn.Module], optimizers: Sequence[Optimizer], scalers: Sequence[GradScaler]
    ) -> None:
        self._modules = modules
        self._scalers = scalers
        self._hooks = NewHooks(modules, optimizers)
        self._grad = torch.is_grad_enabled()
        self.keep_modes()

    def keep_modes(self) -> None:
        """The modules train, or evaluate, as they should."""
        self._modes = [(one, one.training) for module in self._modules for one in module.modules()]

    def restore(self) -> None:
        """All is as it was, for the function to do again: else its hooks would act twice."""
        self._hooks.remove()
        torch.set_grad_enabled(self._grad)
        for module, mode in self._modes:
            module.training = mode
        for one in self._scalers:
            if one.is_enabled():  # it knows of gradients that it has unscaled, which are gone
                one.scale(torch.ones(()))
                one.update(one.get_scale())


class Untouched:
    """Parameters that nothing should change meanwhile.

    Args:
        modules: that have them.
        optimizers: whose own are left out: the others are frozen, unless the loop changes them itself, as it does an
            average.
    """

    def __init__(self, modules: Sequence[nn.Module], optimizers: Sequence[Optimizer] = ()) -> None:
        self._optimizers = optimizers
        held = self._held()
        named = ((name, one) for module in modules for name, one in module.named_parameters())
        self._sums = [(name, one, _sum(one)) for name, one in named if one not in held]

    def changed(self) -> str:
        """The name of the first one that has changed since; empty: none has."""
        held = self._held()
        return next((name for name, one, was in self._sums if one not in held and _sum(one) != was), "")

    def _held(self) -> set[Tensor]:
        return {one for optimizer in self._optimizers for group in optimizer.param_groups for one in group["params"]}


class Evaluation:
    """What an evaluation, or all that a loop does at the end of an epoch, may change: to undo it, as it is done anew.

    Args:
        modules: of the run.
        options: as they are before it.
        begins: what it begins with, unless that is put back with all that the loop's function leaves behind.
    """

    def __init__(self, modules: Sequence[nn.Module], options: AtPlace, begins: Round | None = None) -> None:
        self._options = options
        self._begins = begins
        self._weights = Untouched(modules)

    def undo(self) -> str:
        """Undo it; returns the name of a parameter that is another one, if one is: a loop may evaluate an average."""
        self._options.restore()
        if self._begins:
            self._begins.restore()
        return self._weights.changed()


def _sum(parameter: Tensor) -> int:
    """Of a tensor's bits, as numbers of eight bytes where they are aligned, which is as fast as memory is."""
    content = local_part(parameter).contiguous().reshape(-1).view(torch.uint8)
    start = -content.storage_offset() % WORD
    stop = start + max(len(content) - start, 0) // WORD * WORD
    words = int(content[start:stop].view(torch.int64).sum()) if stop > start else 0
    return words + int(content[:start].sum(dtype=torch.int64)) + int(content[stop:].sum(dtype=torch.int64))
