"""Learning rate schedules and optimizers of which only one goes on from a checkpoint.

A checkpoint's optimizer that has a learning rate which a schedule had changed shows that there was one whose state is
not loaded. And a schedule that was loaded goes on with an optimizer that was not: its momentum is lost, and a schedule
that multiplies the learning rate begins with that of the start. A rank says so at its end. Looked at is the first step
after one was loaded; others pay for one comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import NEW_SCHEDULE, RESUMED_ALONE
from kittrain.system.by_identity import ByIdentity


class NewSchedules:
    """The optimizers and schedules of a process."""

    def __init__(self) -> None:
        # Optimizers that have taken no step since they were loaded, and the learning rate that was.
        self._resumed: ByIdentity[float] = ByIdentity()
        self._schedules: ByIdentity[None] = ByIdentity()  # that nothing was loaded into
        self._continued: ByIdentity[str] = ByIdentity()  # optimizers of others, until a step, and what is told of them
        self._loaded: ByIdentity[None] = ByIdentity()  # optimizers
        self._told = self._alone = ""

    def watch_optimizers(self, module: ModuleType) -> None:
        """Watch what optimizers load.

        Args:
            module: ``torch.optim.optimizer``.
        """
        watch_calls(module.Optimizer, "load_state_dict", self._resumes)
        watch_calls(module.Optimizer, "__setstate__", self._loads)  # by load_state_dict, too

    def watch_schedules(self, module: ModuleType) -> None:
        """Watch which schedules are made, and what they load.

        Args:
            module: ``torch.optim.lr_scheduler``.
        """
        watch_calls(module.LRScheduler, "__init__", lambda schedule, *_, **__: self._made(schedule))
        for kind in [one for one in vars(module).values() if isinstance(one, type)]:
            if issubclass(kind, module.LRScheduler) and "load_state_dict" in vars(kind):
                watch_calls(kind, "load_state_dict", lambda schedule, *_, **__: self._goes_on(schedule))

    def called(self, optimizer: Any) -> None:
        """An optimizer takes a step."""
        if self._continued and (told := self._continued.pop(optimizer)) and optimizer not in self._loaded:
            self._alone = told if optimizer.state else ""  # plain SGD has none
        if not self._resumed or (rate := self._resumed.pop(optimizer)) is None:
            return
        with suppress(Exception):  # classes of the script's own may lack anything
            for schedule in self._schedules:
                if schedule.optimizer is optimizer and schedule.last_epoch == 0:
                    self._told = f"{type(schedule).__name__} at its first step, the loaded rate was {rate:.3g}"

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {NEW_SCHEDULE}{self._told}\n")
        if self._alone:
            sys.stderr.write(f"note: {RESUMED_ALONE}{self._alone}\n")

    def _made(self, schedule: Any) -> None:
        self._schedules[schedule] = None

    def _goes_on(self, schedule: Any) -> None:
        self._schedules.pop(schedule)
        if schedule.last_epoch > 0 and not schedule.optimizer.state:
            self._continued[schedule.optimizer] = f"{type(schedule).__name__} at its step {schedule.last_epoch}"

    def _loads(self, optimizer: Any, _state: object) -> None:
        self._loaded[optimizer] = None

    def _resumes(self, optimizer: Any, state_dict: Mapping[str, Any]) -> None:
        group = state_dict["param_groups"][0]
        if group.get("initial_lr", group["lr"]) != group["lr"]:
            self._resumed[optimizer] = float(group["lr"])
