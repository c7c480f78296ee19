"""State dicts that change nothing as they are loaded.

Either ``strict=False`` accepts that all names have a prefix, such as DDP's; or the state dict refers to the model's own
tensors, which training has changed since, as it was kept without a copy. A rank says so at its end. What it costs: some
comparisons for each call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import NOTHING_LOADED, OWN_LOADED

LOOKED_AT: Final = 8  # parameters


class LoadedNames:
    """What the modules of a process have loaded.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._told = self._own = ""

    def watch(self, modules: ModuleType) -> None:
        """Watch what torch's class of modules loads.

        Args:
            modules: ``torch.nn.modules.module``.
        """
        module = modules.Module
        load = module.load_state_dict

        @in_place_of(load)
        def noted_load(model: Any, *args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):  # a class of the script's own may take, and return, anything
                self._loads(model, args[0] if args else kwargs["state_dict"])
            result = load(model, *args, **kwargs)
            with suppress(Exception):
                self._loaded(model, *result)
            return result

        module.load_state_dict = noted_load

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if told := self._told or self._own:
            sys.stderr.write(f"note: {told}\n")

    def _loads(self, model: Any, state: Any) -> None:
        known = [*islice(model.named_parameters(), LOOKED_AT)]
        if known and self._steps() and all(state[name].data_ptr() == one.data_ptr() for name, one in known):
            self._own = f"{OWN_LOADED}{type(model).__name__} after {self._steps()} steps"

    def _loaded(self, model: Any, missing: list[str], unexpected: list[str]) -> None:
        if missing and unexpected and len(missing) == len(model.state_dict()):
            self._told = (
                f"{NOTHING_LOADED}{type(model).__name__}'s {len(missing)} values: it has {missing[0]}, "
                f"and the file {unexpected[0]}"
            )
        elif not missing:
            self._told = ""  # it was loaded then
