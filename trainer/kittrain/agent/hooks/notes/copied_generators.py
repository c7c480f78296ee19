"""Random numbers of a data set that its workers draw anew in each pass: augmentations that repeat themselves.

A worker of a ``DataLoader`` has a copy of the data set, and so of a generator in it, as that is when the pass begins.
Torch seeds its own generator, Python's and numpy's in each worker; it knows of no other. A rank says so at its end.

Looked at are shuffled loaders: what validates may draw the same numbers on purpose. The generator has to be used by a
method of its owner, the data set or a transform in it, and to be in the same state as a second pass begins.
"""

from __future__ import annotations

import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, Final

from kittrain.agent.hooks.notes.data_sets import nested
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import SAME_DRAWS
from kittrain.system.by_identity import ByIdentity

GENERATORS: Final = frozenset(
    {("numpy", "Generator"), ("numpy", "RandomState"), ("random", "Random"), ("torch", "Generator")}
)
BEFORE: Final = frozenset({"__init__", "__setstate__", "__getstate__"})  # methods that no sample calls


class CopiedGenerators:
    """The loaders of a process.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._before: ByIdentity[tuple[int, dict[str, bytes]]] = ByIdentity()
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch the passes over loaders.

        Args:
            module: ``torch.utils.data.dataloader``.
        """
        watch_calls(module.DataLoader, "__iter__", self._begins)

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")

    def _begins(self, loader: Any) -> None:
        if self._told or not loader.num_workers or loader.persistent_workers or loader.worker_init_fn is not None:
            return
        sampler = loader.sampler
        if not (type(sampler).__name__ == "RandomSampler" or getattr(sampler, "shuffle", False)):
            return
        with suppress(Exception):  # classes of the script's own may refuse anything
            steps, now = self._steps(), dict(_states(loader.dataset))
            steps_before, before = self._before.get(loader) or (steps, {})
            self._before[loader] = steps, now
            same = [name for name, state in now.items() if before.get(name) == state]
            if same and steps > steps_before:
                self._told = f"{SAME_DRAWS}each has a copy of {same[0]}"


def _states(dataset: Any) -> Iterator[tuple[str, bytes]]:
    """The states of a data set's generators, and of those in it and of transforms, with the class of each."""
    for one, held in nested(dataset):
        for owner in (one, *held.values()):
            kind = type(owner)
            for name, value in getattr(owner, "__dict__", {}).items():
                if (_package(value), type(value).__qualname__) in GENERATORS and _uses(kind, name):
                    yield f"{kind.__name__}.{name}", _state(value)


def _state(generator: Any) -> bytes:
    """The same for generators that draw the same. Of torch's own state some bytes are of no use, and differ."""
    if _package(generator) != "torch":
        return pickle.dumps(generator)
    copy = type(generator)(device=generator.device)
    copy.set_state(generator.get_state())
    drawn: bytes = sys.modules["torch"].rand(2, generator=copy, device=copy.device).cpu().numpy().tobytes()
    return drawn


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _uses(kind: type, name: str) -> bool:
    """Whether a method of a class that samples may call names an attribute."""
    methods = ChainMap(*(dict(vars(base)) for base in kind.__mro__))  # without those that are overridden
    used = (one for key, one in methods.items() if key not in BEFORE and isinstance(one, FunctionType))
    return any(name in one.__code__.co_names for one in used)
