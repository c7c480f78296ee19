"""Hooks that a script has registered on modules, parameters and optimizers, to take back those that are new."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

# Those that act in a step. Each is a dict by the number of the hook's handle.
MODULE: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PARAMETER: Final = ("_backward_hooks", "_post_accumulate_grad_hooks")
OPTIMIZER: Final = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")

Hooks = MutableMapping[int, Any]


class NewHooks:
    """Knows the hooks that there are now.

    Args:
        modules: with all that they contain, and their parameters.
        optimizers: besides.
    """

    def __init__(self, modules: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self._modules, self._optimizers = modules, optimizers
        self._known = {number for hooks in self._hooks() for number in hooks}  # handles have different numbers

    def remove(self) -> None:
        """Remove those that were registered since, except by torch itself."""
        for hooks in self._hooks():
            for number in hooks.keys() - self._known:
                if not getattr(hooks[number], "__module__", "").startswith("torch."):
                    del hooks[number]

    def _hooks(self) -> Iterator[Hooks]:
        owners: list[tuple[object, tuple[str, ...]]] = [(one, OPTIMIZER) for one in self._optimizers]
        for module in self._modules:
            owners += [(one, MODULE) for one in module.modules()]
            owners += [(one, PARAMETER) for one in module.parameters()]
        for owner, names in owners:
            for name in names:
                if hooks := getattr(owner, name, None):
                    yield hooks
