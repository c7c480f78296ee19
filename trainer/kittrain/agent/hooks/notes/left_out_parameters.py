"""Parameters that get gradients, and are trained on one rank alone, or not at all.

``DistributedDataParallel`` averages the gradients of those that its model has when it is wrapped, and that are not
frozen then: of a layer that is put in, or unfrozen, later, each rank has its own values. A model does not know the
layers that it keeps in a plain list or dict: no optimizer gets them. And an optimizer keeps the parameters that the
model had when it was made. A rank says so at its end. What it costs: at the 8th, 16th, 32nd, ... step a look at the
model. Imports no torch.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.looks import is_due
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import NOT_GIVEN, NOT_OPTIMIZED, NOT_REGISTERED
from kittrain.system.by_identity import ByIdentity

FIRST: Final = 8  # step after which is looked: each optimizer has taken one by then
NAMES: Final = 3  # that are told
ITEMS: Final = 1000  # of a list, among which layers are looked for


class LeftOutParameters:
    """The models of a process that DDP has wrapped, and the steps of its optimizers."""

    def __init__(self) -> None:
        self._steps = 0
        self._wrapped: ByIdentity[None] = ByIdentity()
        self._optimizers: ByIdentity[None] = ByIdentity()
        self._given: dict[int, Callable[[], Any]] = {}  # a tensor is no key of a weak dictionary: == compares values
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch what is wrapped.

        Args:
            module: ``torch.nn.parallel.distributed``.
        """
        watch_calls(module.DistributedDataParallel, "__init__", self._wraps)

    def called(self, optimizer: Any) -> None:
        """An optimizer has taken a step."""
        if not self._wrapped:
            return
        self._steps += 1
        if self._steps <= FIRST:
            self._optimizers[optimizer] = None
        if is_due(self._steps, FIRST) and not self._told:
            with suppress(Exception):  # a class of the script's own may lack anything
                self._told = next(filter(None, map(self._look, self._wrapped)), "")

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")

    def _wraps(self, wrapper: Any, *_args: object, **_kwargs: object) -> None:
        self._wrapped[wrapper] = None
        for one in wrapper.module.parameters():
            if one.requires_grad:
                self._given[id(one)] = weakref.ref(one)

    def _look(self, wrapper: Any) -> str:
        model = wrapper.module
        if wrapper.process_group.size() > 1:
            late = [name for name, one in model.named_parameters() if _trained(one) and not self._is_given(one)]
            if late:
                return f"{NOT_GIVEN}{_listed(late)}"
        groups = (group for optimizer in self._optimizers for group in optimizer.param_groups)
        held = {id(one): one for group in groups for one in group["params"]}
        known = {id(one) for one in model.modules()}
        hidden = [
            f"{name} ({kind} of {type(owner).__name__})"
            for owner in model.modules()
            for name, kind, layer in _in_containers(owner)
            if id(layer) not in known and any(_trained(one) and id(one) not in held for one in layer.parameters())
        ]
        if hidden:
            return f"{NOT_REGISTERED}{_listed(hidden)}"
        missing = [name for name, one in model.named_parameters() if _trained(one) and id(one) not in held]
        return f"{NOT_OPTIMIZED}{_listed(missing)}" if missing and self._has_replaced(held.values()) else ""

    def _has_replaced(self, held: Iterable[Any]) -> bool:
        """Whether optimizers have parameters that no model has any more, and that have never got a gradient."""
        known = {id(one) for wrapper in self._wrapped for one in wrapper.module.parameters()}
        idle = [one for one in held if one.requires_grad and one.grad is None and id(one) not in known]
        return any(not any(one in optimizer.state for optimizer in self._optimizers) for one in idle)

    def _is_given(self, parameter: Any) -> bool:
        reference = self._given.get(id(parameter))
        return reference is not None and reference() is parameter


def _trained(parameter: Any) -> bool:
    return parameter.requires_grad and parameter.grad is not None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more


def _in_containers(owner: Any) -> Iterator[tuple[str, str, Any]]:
    """The layers in a module's plain lists, tuples and dicts: the name of each, what it is in, and the layer."""
    module = sys.modules["torch"].nn.Module
    for name, value in vars(owner).items():
        if name.startswith("_") or not isinstance(value, list | tuple | dict):
            continue
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        kind = "in a dict" if isinstance(value, Mapping) else f"in a {type(value).__name__}"
        yield from (
            (f"{name}[{key!r:.20}]", kind, item) for key, item in islice(items, ITEMS) if isinstance(item, module)
        )
