"""A model's plain parameter and buffer names, without the prefixes that wrappers add.

``torch.compile``, DDP and activation checkpointing hold the module that they wrap as a child, so each adds a
component to all names below it. Snapshots use the names of the plain module.
"""

from __future__ import annotations

from collections import Counter

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from kittrain.torch_private.early import WRAPPED_MODULES


class Names:
    """The plain names of a model's parameters, buffers and modules.

    Args:
        model: as the training script made it; the model and any of its modules may be wrapped.
    """

    def __init__(self, model: nn.Module) -> None:
        self._wrappers: Counter[tuple[str, str]] = Counter()  # by the plain name of the wrapped module
        for path, module in model.named_modules(remove_duplicate=False):  # parents come before their children
            if component := _wrapper_component(module):
                self._wrappers[self.bare(path), component] += 1

    def bare(self, name: str) -> str:
        """Remove the components that wrappers added to a name."""
        if not self._wrappers:
            return name
        plain: list[str] = []
        remaining = self._wrappers.copy()
        for component in name.split("."):
            key = ".".join(plain), component
            if remaining[key] > 0:
                remaining[key] -= 1
            else:
                plain.append(component)
        return ".".join(plain)


def _wrapper_component(module: nn.Module) -> str:
    """The name component that a wrapper adds; empty if the module is not a wrapper."""
    children = [name for name, _ in module.named_children()]
    if reserved := [name for name in WRAPPED_MODULES if name in children]:
        return reserved[0]
    return "module" if isinstance(module, DistributedDataParallel | DataParallel) else ""
