"""State dicts of which ``load_state_dict(strict=False)`` loads nothing, as their names have a prefix, such as DDP's.

A rank says so at its end. What it costs: two comparisons for each call.
"""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

from kittrain.outcome.rank_output import NOTHING_LOADED


class LoadedNames:
    """What the modules of a process have loaded."""

    def __init__(self) -> None:
        self._told = ""

    def watch(self, modules: ModuleType) -> None:
        """Watch what torch's class of modules loads.

        Args:
            modules: ``torch.nn.modules.module``.
        """
        module = modules.Module
        load = module.load_state_dict

        @functools.wraps(load)
        def noted_load(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = load(model, *args, **kwargs)
            with suppress(Exception):  # a class of the script's own may return anything
                self._loaded(model, *result)
            return result

        module.load_state_dict = noted_load

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")

    def _loaded(self, model: Any, missing: list[str], unexpected: list[str]) -> None:
        if missing and unexpected and len(missing) == len(model.state_dict()):
            self._told = (
                f"{NOTHING_LOADED}{type(model).__name__}'s {len(missing)} values: it has {missing[0]}, "
                f"and the file {unexpected[0]}"
            )
        elif not missing:
            self._told = ""  # it was loaded then
