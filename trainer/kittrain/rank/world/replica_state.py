"""What DDP modules keep from step to step besides the parameters, so that a resumed run rounds as it would have done.

From three ranks on, the order of a sum matters: (a + b) + c is not a + (b + c). An all-reduce adds an element in an
order that depends on its place in the bucket of gradients, and DDP forms the buckets anew after the first backward pass
of a process. A resumed process therefore gets the buckets of the one before it, from its first step on. Of a static
graph, DDP forms them after the second one: if a process saved its state between the two, the next process notes the
order in its own first step.

Why: decision 50.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from kittrain.rank.world import comm_hooks as hook_states
from kittrain.rank.world.comm_hooks import HookStateError
from kittrain.torch_private.ddp import (
    Buckets,
    ReadyOrder,
    averaged_parameters,
    call_before_forward,
    comm_hooks,
    is_static_after_one_step,
    rebuilds_buckets,
    rebuilt_buckets,
    set_buckets,
)

_made: list[ref[DistributedDataParallel]] = []  # all DDP modules of this process, the newest last


def _remember(module: nn.Module, name: str, _: nn.Module | None) -> None:
    """A script may give a run its plain module, and wrap it before or after; nothing leads from there to DDP."""
    if name == "module" and isinstance(module, DistributedDataParallel) and module not in living():
        _made.append(ref(module))


register_module_module_registration_hook(_remember)


def living() -> list[DistributedDataParallel]:
    """The DDP modules of this process that are in use, the newest last."""
    _made[:] = [one for one in _made if one() is not None]
    return [module for one in _made if (module := one())]


class ReplicaState:
    """Saves and restores it, for the DDP modules of this rank that train a run's parameters.

    Args:
        names: returns the plain names of the run's parameters.
        tell: prints a line about what cannot be exact, once.
    """

    def __init__(self, names: Callable[[], Mapping[Tensor, str]], tell: Callable[[str], None]) -> None:
        self._names = names
        self._tell = tell
        self._told: set[str] = set()
        self._keys: WeakKeyDictionary[DistributedDataParallel, str] = WeakKeyDictionary()  # "": not of this run
        self._buckets: WeakKeyDictionary[DistributedDataParallel, Buckets] = WeakKeyDictionary()
        self._noting: WeakKeyDictionary[DistributedDataParallel, ReadyOrder] = WeakKeyDictionary()
        self._saved: dict[str, dict[str, Any]] = {}  # what was restored, and is not set yet

    def capture(self) -> list[dict[str, Any]]:
        """Plain values and tensors that no longer change, for each module. Collective, between two steps."""
        found = [{"key": key, **self._capture(module)} for key, module in self._modules().items()]
        return [one for one in found if len(one) > 1]

    def restore(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Keep what ``capture`` returned on this rank, for ``apply``."""
        self._saved = {one["key"]: dict(one) for one in saved}

    def apply(self) -> None:
        """Set the modules that exist by now to what was restored. Collective, before their first backward pass."""
        if not self._saved:
            return
        for key, module in self._modules().items():
            if saved := self._saved.pop(key, None):
                self._apply(module, saved)

    def _modules(self) -> dict[str, DistributedDataParallel]:
        """This run's modules, by a key that is the same in each process; of several with one key, the newest.

        Ranks may forget an older module that nothing uses any more at different times.
        """
        unknown = [one for one in living() if one not in self._keys]
        names = self._names() if unknown else {}
        for one in unknown:
            self._keys[one] = _key(one, names)
        return {self._keys[one]: one for one in living() if self._keys[one]}

    def _capture(self, module: DistributedDataParallel) -> dict[str, Any]:
        values: dict[str, Any] = {}
        buckets = self._final_buckets(module)
        if buckets is not None:
            values["buckets"] = buckets
        hooks = [self._hook_state(hook, state) for hook, state in comm_hooks(module)]
        return values | ({"hooks": hooks} if any(one is not None for one in hooks) else {})

    def _final_buckets(self, module: DistributedDataParallel) -> Buckets | None:
        """None: not known, as in a new process; empty: one step more, and they are known."""
        if module in self._noting and not self._end_noting(module):
            return []
        if module not in self._buckets and rebuilds_buckets(module):
            try:
                buckets = rebuilt_buckets(module)
            except RuntimeError:  # DDP raises it again in the next forward pass, with an explanation, if there is one
                return None
            if buckets and _complete(buckets, len(averaged_parameters(module))):
                self._buckets[module] = buckets
            elif is_static_after_one_step(module):
                return []
        return self._buckets.get(module)

    def _note_order(self, module: DistributedDataParallel) -> None:
        """Form the buckets after the next backward pass, which is the second one of a static graph in this run."""
        self._noting[module] = ReadyOrder(module)
        weak = ref(module)  # it would hold itself
        call_before_forward(module, lambda: self._end_noting(cast("DistributedDataParallel", weak())))

    def _end_noting(self, module: DistributedDataParallel) -> bool:
        """Whether the buckets are final. Collective."""
        if (order := self._noting.get(module)) is not None:
            if not order:
                return False
            del self._noting[module]
            self._set_buckets(module, [order.end()])
        return True

    def _hook_state(self, hook: Callable[..., Any], state: Any) -> Any:
        try:
            return hook_states.capture(hook, state)
        except HookStateError as error:
            self._tell_once(f"note: {error}")
            return None

    def _apply(self, module: DistributedDataParallel, saved: Mapping[str, Any]) -> None:
        parameters = averaged_parameters(module)
        buckets = saved.get("buckets")
        if buckets == [] and module.static_graph:
            self._note_order(module)
        elif buckets and rebuilds_buckets(module) and _complete(buckets, len(parameters)):
            self._set_buckets(module, buckets)
        for (_, state), values in zip(comm_hooks(module), saved.get("hooks", ()), strict=False):
            if values is not None and state is not None:
                hook_states.restore(state, values, parameters[0].device)

    def _set_buckets(self, module: DistributedDataParallel, buckets: Buckets) -> None:
        buckets = _agreed(buckets, module, averaged_parameters(module)[0].device)
        set_buckets(module, buckets)
        self._buckets[module] = buckets

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def _key(module: DistributedDataParallel, names: Mapping[Tensor, str]) -> str:
    """Which module it is: a digest of its parameters' names and shapes; empty if it trains none of these parameters."""
    parameters = averaged_parameters(module) if hasattr(module, "reducer") else []
    if not any(one in names for one in parameters):
        return ""
    own = {one: name for name, one in module.module.named_parameters()}
    facts = [(names.get(one, own[one]), tuple(one.shape)) for one in parameters]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _complete(buckets: Buckets, count: int) -> bool:
    """Whether they have each parameter once: parameters may have been frozen since the module was made."""
    return sorted(number for bucket in buckets for number in bucket) == list(range(count))


def _agreed(buckets: Buckets, module: DistributedDataParallel, device: torch.device) -> Buckets:
    """The buckets of the first rank, on all ranks: if these differed, they would average unlike parameters."""
    order = torch.tensor([number for bucket in buckets for number in bucket], device=device)
    dist.broadcast(order, src=dist.get_global_rank(module.process_group, 0), group=module.process_group)
    numbers = iter(order.tolist())
    return [[next(numbers) for _ in bucket] for bucket in buckets]
