"""Whether the ranks that train one model still have the same one.

DDP sends rank 0's parameters as it wraps a model, and averages gradients from then on, so all ranks have equal ones as
long as they do the same. They do not if each has a learning rate of its own, if one alone loads a checkpoint after
that, or changes a layer. A few values are compared at the 4th, 8th, 16th, ... exchanged backward pass: rank 0 leaves
its own in the group's store, and each other rank looks at those of the pass before, which are there, as rank 0 has
taken part in an exchange since. So nobody waits, and nothing is exchanged in the group. Small differences are none:
machines of several kinds round in several ways. A rank that differs says so at its end. Imports no torch.
"""

from __future__ import annotations

import struct
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.looks import is_due
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import ANOTHER_MODEL
from kittrain.torch_private.early import default_store

FIRST: Final = 4  # exchanged pass after which is looked
PARAMETERS: Final = 16  # that are compared
VALUES: Final = 4  # of each
TOLERANCE: Final = 1e-3  # of the larger of two values, or of the mean if that is more
ROUNDED: Final = 8  # times a type's own precision, if that is more
KEY: Final = "kittrain/model/"  # and the number of the pass
C10D: Final = "torch.distributed.distributed_c10d"


class DivergedModels:
    """The models of a process that DDP has wrapped."""

    def __init__(self) -> None:
        self._wrapped: list[Callable[[], Any]] = []
        self._passes = 0
        self._last: tuple[int, Sequence[float]] | None = None  # the pass of the last look, and what was seen
        self._told = ""
        self._judged = True

    def watch(self, module: ModuleType) -> None:
        """Watch what is wrapped.

        Args:
            module: ``torch.nn.parallel.distributed``.
        """
        watch_calls(module.DistributedDataParallel, "__init__", self._wraps)

    def watch_averagers(self, module: ModuleType) -> None:
        """Watch for a script that lets ranks train models of their own between averages.

        Args:
            module: ``torch.distributed.algorithms.model_averaging.averagers``.
        """
        watch_calls(module.ModelAverager, "__init__", self._leave_out)

    def watch_joins(self, module: ModuleType) -> None:
        """Watch for a script whose ranks take different numbers of steps: their passes are not of one step.

        Args:
            module: ``torch.distributed.algorithms.join``.
        """
        watch_calls(module.Join, "__enter__", self._leave_out)

    def formed(self) -> None:
        """A group has formed: all of its ranks count anew, also in a process that has been in another one."""
        self._passes, self._last = 0, None

    def passed(self, *, exchanged: bool) -> None:
        """A backward pass has ended that is no evaluation's."""
        if not (exchanged and self._wrapped):
            return
        self._passes += 1
        if is_due(self._passes, FIRST) and self._judged and not self._told:
            with suppress(Exception):  # the store may be gone, and a class of the script's own may lack anything
                self._look()

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told and self._judged:
            sys.stderr.write(f"note: {self._told}\n")

    def _wraps(self, wrapper: Any, *_args: object, **_kwargs: object) -> None:
        self._wrapped.append(weakref.ref(wrapper))

    def _leave_out(self, *_args: object, **_kwargs: object) -> None:
        self._judged = False

    def _look(self) -> None:
        distributed: Any = sys.modules[C10D]
        ranks, store = distributed.get_world_size(), default_store(distributed)
        alive = (wrapper for reference in self._wrapped if (wrapper := reference()) is not None)
        wrapper = next((one for one in alive if one.process_group.size() == ranks), None)
        if wrapper is None or store is None or ranks == 1:
            return
        names, values, rounding = _sample(wrapper.module, getattr(wrapper, "parameters_to_ignore", ()))
        packed = struct.Struct(f"<{len(values)}d")
        if distributed.get_rank() == 0:
            store.set(f"{KEY}{self._passes}", packed.pack(*values))
        elif self._last and store.check([f"{KEY}{self._last[0]}"]):
            passes, before = self._last
            theirs = packed.unpack(store.get(f"{KEY}{passes}"))
            if (found := _first_that_differs(before, theirs, rounding)) is not None:
                self._told = f"{ANOTHER_MODEL}{names[found]} differs, as seen after {passes} backward passes"
        self._last = self._passes, values


def _sample(model: Any, ignored: Collection[str] = ()) -> tuple[list[str], list[float], float]:
    """Values of some parameters, the name of each value's, and how precise the least precise of them is.

    ``ignored`` are those that DDP was told to leave alone, such as experts that each rank has for itself.
    """
    named = [(name, one) for name, one in model.named_parameters() if name not in ignored and _is_plain(one)]
    step = max(1, -(-len(named) // PARAMETERS))
    chosen = named[:-1:step] + named[-1:]
    found = [(name, value) for name, one in chosen for value in _values(one)]
    finfo = sys.modules["torch"].finfo
    rounding = max((finfo(one.dtype).eps for _, one in chosen), default=0.0)
    return [name for name, _ in found], [value for _, value in found], rounding


def _is_plain(tensor: Any) -> bool:
    """Whether its values are numbers, and can be read without asking other ranks and without a copy."""
    kind = type(tensor.detach()).__qualname__
    return bool(kind == "Tensor" and tensor.is_floating_point() and tensor.is_contiguous() and not tensor.is_meta)


def _values(tensor: Any) -> Iterator[float]:
    flat = tensor.detach().reshape(-1)
    yield from flat[:: max(1, flat.numel() // VALUES)][:VALUES].double().tolist()


def _first_that_differs(ours: Sequence[float], theirs: Sequence[float], rounding: float) -> int | None:
    """The index of the first value that differs by more than rounding; none if any is not finite."""
    scale = sum(map(abs, (*ours, *theirs))) / max(1, 2 * len(ours))
    limit = max(TOLERANCE, ROUNDED * rounding)
    if not scale < float("inf"):
        return None
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((at for at, (one, other) in pairs if abs(one - other) > limit * max(abs(one), abs(other), scale)), None)
