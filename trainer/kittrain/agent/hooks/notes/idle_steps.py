"""Optimizer steps that change nothing: with a learning rate of 0, or without a gradient. Such a script trains nothing.

A rank says so at its end if none of its steps has changed anything. As soon as one has, nothing is looked at any more.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kittrain.outcome.rank_output import CHANGED_NOTHING

LOOKS: Final = 1000  # steps, after which that stays so
RATE: Final = "its learning rate was 0"
GRADIENTS: Final = "none of its parameters had a gradient"


class IdleSteps:
    """Watches all optimizers of a process."""

    def __init__(self) -> None:
        self._why = ""
        self._steps = 0
        self._looks = True

    def called(self, optimizer: Any) -> None:
        """An optimizer has taken a step."""
        if not self._looks:
            return
        self._why = why_idle(optimizer.param_groups)
        self._steps += 1
        self._looks = bool(self._why) and self._steps < LOOKS

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._why:
            which = f"all {self._steps} steps" if self._looks else f"its first {LOOKS} steps"
            sys.stderr.write(f"note: {CHANGED_NOTHING}{self._why} at {which}\n")


def why_idle(groups: Sequence[Mapping[str, Any]]) -> str:
    """Why a step with these parameters has changed nothing; empty if it has, or if that is not known. Pure."""
    if all(isinstance(group.get("lr"), int | float) and group["lr"] == 0 for group in groups):
        return RATE
    return GRADIENTS if all(one.grad is None for group in groups for one in group["params"]) else ""
