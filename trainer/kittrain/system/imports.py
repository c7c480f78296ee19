"""Faster imports of large packages, and actions after an import that may come later or never."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


@contextmanager
def without_gc() -> Iterator[None]:
    """Disable the garbage collector, which finds nothing to free during imports. Saves a fifth of torch's import.

    What was imported is exempt from later collections, too: the first would take a quarter of a second for torch.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


def after_import(name: str, act: Callable[[ModuleType], object]) -> None:
    """Call ``act`` with a module once it has been imported: now, if it is already."""
    if module := sys.modules.get(name):
        act(module)
    else:
        sys.meta_path.insert(0, _AfterImport(name, act))


class _AfterImport(MetaPathFinder):
    """Finds one module as the other finders do, and removes itself."""

    def __init__(self, name: str, act: Callable[[ModuleType], object]) -> None:
        self._name = name
        self._act = act

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """See the base class."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._act(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
