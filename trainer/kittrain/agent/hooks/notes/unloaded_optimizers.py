"""Checkpoints from which a run goes on with their model, and not with their optimizer.

Momentum is lost then, and the learning rate is that of the start. A run goes on from a checkpoint if it gives a model
what it has loaded, takes a step, and saves to the same file an optimizer again; one that fine-tunes a model saves to
another file. Left out are files that this process has saved itself, as that of the best epoch, and optimizers that have
their own way to load. A rank says so at its end. What it costs: a look at the top of what a file has, and a comparison
for each step. Imports no torch.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import NOT_RESUMED

MODULE: Final = "torch.optim.optimizer"
LOOKED_AT: Final = 64  # entries of a file
SHOWN: Final = 3  # of them
READ, GIVEN, TRAINED = range(3)  # what has happened to a file's content: a model has got it, and has taken a step
_KEY: Final = re.compile(r"[\w.-]{1,24}")  # that is shown
_NAME: Final = re.compile(r"[\w.=+-]{1,60}")  # of a file that is shown


@dataclass(slots=True)
class _File:
    told: str
    """Its name, and those of its optimizers."""
    stage: int = READ


class UnloadedOptimizers:
    """The files that a process loads and saves, of those that have an optimizer."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}  # that were loaded
        self._own: set[str] = set()  # that were saved
        self._judged = True
        self._told = ""

    def watch_optimizers(self, module: ModuleType) -> None:
        """Watch what optimizers load.

        Args:
            module: ``torch.optim.optimizer``.
        """
        for name in ("load_state_dict", "__setstate__"):  # the latter also of one that kittrain restores
            watch_calls(module.Optimizer, name, self._leave_out)

    def watch_modules(self, module: ModuleType) -> None:
        """Watch what modules load.

        Args:
            module: ``torch.nn.modules.module``.
        """
        watch_calls(module.Module, "load_state_dict", self._gives)

    def loaded(self, file: Any, content: Any) -> None:
        """A file was loaded, given by its path or opened."""
        if self._judged and (keys := _optimizers(content, used=True)):
            path = _path(file)
            if path not in self._own:
                name = Path(path).name
                shown = ", ".join([key for key in keys if _KEY.fullmatch(key)][:SHOWN]) or "one"
                self._files[path] = _File(f"{name if _NAME.fullmatch(name) else 'a file'} has {shown}")

    def saved(self, file: Any, content: Any) -> None:
        """A file was saved."""
        if self._judged and _optimizers(content):
            self._saves(_path(file))

    def renamed(self, source: Any, target: Any) -> None:
        """A file has another name."""
        if self._judged and self._own and (before := _path(source)) in self._own:
            self._own.discard(before)
            self._saves(_path(target))

    def called(self, optimizer: Any) -> None:
        """An optimizer has taken a step."""
        if self._files and self._judged:
            self._judged = type(optimizer).load_state_dict is sys.modules[MODULE].Optimizer.load_state_dict
            self._advance(GIVEN, TRAINED)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told and self._judged:
            sys.stderr.write(f"note: {NOT_RESUMED}{self._told}; this run goes on from it and saves it\n")

    def _saves(self, path: str) -> None:
        self._own.add(path)
        file = self._files.get(path)
        if file and file.stage == TRAINED:
            self._told = file.told

    def _gives(self, *_args: object, **_kwargs: object) -> None:
        self._advance(READ, GIVEN)

    def _advance(self, before: int, after: int) -> None:
        for file in self._files.values():
            if file.stage == before:
                file.stage = after

    def _leave_out(self, *_args: object, **_kwargs: object) -> None:
        self._judged = False


def _path(file: Any) -> str:
    return os.path.realpath(os.fsdecode(file.name if hasattr(file, "fileno") else file))


def _optimizers(content: Any, *, used: bool = False) -> list[str]:
    """The entries that are the state dict of an optimizer; with ``used`` of one that has more than its settings."""
    entries = islice(content.items(), LOOKED_AT) if isinstance(content, dict) else ()
    states = [(str(key), one) for key, one in entries if isinstance(one, dict) and {"param_groups", "state"} <= {*one}]
    return [key for key, one in states if one["state"] or not used]
