"""Objects whose state differs between ranks: loaders, samplers and random generators that a script passes to a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from kittrain.rank.snapshots.state.state import frozen, has_state
from kittrain.rank.world.data import Data


class OwnObjects:
    """Saves and restores this rank's.

    Args:
        objects: all that were passed, by name.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = {name: one for name, one in objects.items() if not is_shared(one) and not isinstance(one, Data)}
        self._restored: Mapping[str, Any] = {}

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._objects)

    def capture(self) -> dict[str, Any]:
        """Their states, which no longer change.

        Raises:
            StateError: one could not be restored.
        """
        return {
            name: one.get_state() if isinstance(one, torch.Generator) else frozen(one.state_dict())
            for name, one in self._objects.items()
        }

    def restore(self, states: Mapping[str, Any]) -> None:
        """Set those that have been saved."""
        self._restored = states
        for name, one in self._objects.items():
            if name in states:
                (one.set_state if isinstance(one, torch.Generator) else one.load_state_dict)(states[name])

    def restore_generators(self) -> None:
        """Undo what was drawn from generators since: a loader may draw its order from one of them again."""
        for name, one in self._objects.items():
            if name in self._restored and isinstance(one, torch.Generator):
                one.set_state(self._restored[name])


def is_shared(one: object) -> bool:
    """Whether an object's state is equal on all ranks, or part of a sharded one, as opposed to each rank's own."""
    if isinstance(one, Data | torch.Generator):
        return False
    return isinstance(one, nn.Module | Optimizer) or not (has_state(one) and hasattr(one, "__iter__"))
