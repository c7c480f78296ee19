"""A model's own names for what it holds, whatever it was wrapped in.

``torch.compile``, DDP and activation checkpointing hold the module that they wrap as a child, so that each adds a
component to all names below it. What is saved bears the names that the plain module has.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

RESERVED: Final = ("_orig_mod", "_checkpoint_wrapped_module")  # torch's own; no plain module has such a child


class Names:
    """The plain names of a model's parameters, buffers and modules.

    Args:
        model: as the training script made it; it may be wrapped, and so may be any of its modules.
    """

    def __init__(self, model: nn.Module) -> None:
        self._wrappers: Counter[tuple[str, str]] = Counter()  # by the plain name of the wrapped module
        for path, module in model.named_modules(remove_duplicate=False):  # parents come before their children
            if added := _added(module):
                self._wrappers[self.bare(path), added] += 1

    def bare(self, name: str) -> str:
        """A name without what wrappers added to it."""
        if not self._wrappers:
            return name
        kept: list[str] = []
        left = self._wrappers.copy()
        for part in name.split("."):
            here = ".".join(kept), part
            if left[here] > 0:
                left[here] -= 1
            else:
                kept.append(part)
        return ".".join(kept)


def _added(module: nn.Module) -> str:
    """The component that a wrapper adds to names; empty where the module is none."""
    children = [name for name, _ in module.named_children()]
    if reserved := [name for name in RESERVED if name in children]:
        return reserved[0]
    return "module" if isinstance(module, DistributedDataParallel | DataParallel) else ""
