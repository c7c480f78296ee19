"""What is used before or while torch is imported. Imports no torch itself."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

# Torch imports it at a rank's first optimizer step, which takes 1.3 s. No public name imports it.
IMPORTED_AT_FIRST_STEP: Final = "torch._dynamo"
# Functions in which a rank waits for others, by their file: found in stacks.
RUN_BACKWARD: Final = ("torch/autograd/graph.py", "_engine_run_backward")
BROADCAST_BUFFERS: Final = ("torch/nn/parallel/distributed.py", "_distributed_broadcast_coalesced")
BROADCAST_MODEL: Final = ("torch/distributed/utils.py", "_sync_module_states")
COMPARE_MODELS: Final = ("torch/distributed/utils.py", "_verify_param_shape_across_processes")
# The wait of a functional collective, which DTensor uses, and the files above it, to what takes a model's state dict.
FUNCTIONAL: Final = "torch/distributed/_functional_collectives.py"
WAITS_FOR_TENSOR: Final = (FUNCTIONAL, "wait_tensor")
REDISTRIBUTES: Final = "torch/distributed/tensor/_redistribute.py"
HOLDS_DTENSOR: Final = "torch/distributed/tensor/_api.py"
GATHERS_STATE: Final = "torch/distributed/_state_dict_utils.py"
CALLS_OPERATOR: Final = ("torch/_ops.py", "torch/_library/autograd.py")  # below that wait
# A data loader's methods in which it waits for its workers.
WAITS_FOR_WORKERS: Final = tuple(("torch/utils/data/dataloader.py", name) for name in ("_get_data", "_try_get_data"))
# In which a rank waits until the lock file of an extension's build is gone.
WAITS_FOR_BUILD: Final = ("torch/utils/file_baton.py", "wait")
# A process group's methods by which Python begins an exchange. DDP and compiled code call others, of C++.
EXCHANGES: Final = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "allgather", "_allgather_base", "allgather_coalesced"),
    *("allgather_into_tensor_coalesced", "gather", "scatter", "reduce_scatter", "_reduce_scatter_base"),
    *("reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base", "send", "recv", "recv_anysource", "barrier"),
    # Newer versions of torch:
    *("all_gather_single", "all_gather_single_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced"),
    *("all_to_all_single", "gather_single"),
)
# Those of them to which each rank gives as many bytes, by the names of the functions that call them.
EQUAL: Final = {
    "allreduce": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "barrier": "barrier",
}
# Others in which all ranks of a group take part, in the same order.
COLLECTIVE: Final = {
    "allgather": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
}
# Children of modules that torch.compile and checkpoint_wrapper return: the wrapped module.
WRAPPED_MODULES: Final = ("_orig_mod", "_checkpoint_wrapped_module")
# Key of a state dict: what a module saves besides its parameters and buffers.
EXTRA_STATE: Final = "_extra_state"


def on_default_group(
    distributed_c10d: ModuleType, formed: Callable[[Any], object], ending: Callable[[], object]
) -> bool:
    """Call ``formed`` with each process group that becomes the default one; returns whether this torch allows that.

    Torch has no hook for it. It calls the wrapped function with None before a group is destroyed: then ``ending``.
    """
    update: Callable[[Any], None] | None = getattr(distributed_c10d, "_update_default_pg", None)
    if update is None:
        return False

    def update_and_call(group: Any) -> None:
        if group is None:
            ending()
        update(group)
        if group is not None:
            formed(group)

    distributed_c10d._update_default_pg = update_and_call  # type: ignore[attr-defined]  # noqa: SLF001
    return True


def default_store(distributed_c10d: ModuleType) -> Any:
    """The store of the default process group; None if there is no such group. Torch has no public name for it."""
    try:
        return distributed_c10d._get_default_store()  # noqa: SLF001
    except (AttributeError, ValueError):
        return None


def around_stores(rendezvous: ModuleType, meet: Callable[..., Any]) -> None:
    """Call ``meet`` in place of what creates the store of ``env://`` and ``tcp://``, with that and its arguments.

    Torch has no hook for it. Without the function, in another version, stores are created as before.
    """
    create: Callable[..., Any] | None = getattr(rendezvous, "_create_c10d_store", None)
    if create is not None:
        rendezvous._create_c10d_store = functools.partial(meet, create)  # type: ignore[attr-defined]  # noqa: SLF001


def collectives_begun(distributed_c10d: ModuleType | None) -> int:
    """How many collectives this rank has begun, in all of its process groups; 0 if there are none, or it is unknown.

    Torch has no public name for a group's sequence number.
    """
    try:
        groups = distributed_c10d._world.pg_map  # type: ignore[union-attr]  # noqa: SLF001
        return sum(group._get_sequence_number_for_group() for group in groups)  # noqa: SLF001
    except (AttributeError, RuntimeError):
        return 0


def counts_collectives(distributed_c10d: ModuleType) -> bool:
    """Whether ``collectives_begun`` counts those of all groups: of several backends in a group only one is counted."""
    try:
        for group in list(distributed_c10d._world.pg_map):  # noqa: SLF001
            group._get_sequence_number_for_group()  # noqa: SLF001
            backends = distributed_c10d.get_backend_config(group).split(",")
            if len({one.rpartition(":")[2] for one in backends}) != 1:
                return False
    except (AttributeError, RuntimeError, ValueError):
        return False
    return True


def around_exchanges(
    distributed_c10d: ModuleType,
    begun: Callable[[int, int], bool],
    begins: Callable[[Any, str, Sequence[Any]], bool] = lambda *_: False,
) -> None:
    """Call ``begun`` after each exchange that Python begins, with its collectives and the bytes of its tensors.

    Until it returns False: a call costs some microseconds. ``begins`` is called before each, with the group, the
    method's name and what it is given, until it, too, returns False. Not all supported versions of torch have a hook
    for that, so a process group's methods are replaced.
    """
    group: Any = getattr(distributed_c10d, "ProcessGroup", None)
    watched = _Watched(group, begun, begins)
    for name in EXCHANGES:
        if (method := getattr(group, name, None)) is not None and name in vars(group):
            watched.replace(name, method)


class _Watched:
    """A process group's methods that were replaced, and what they call."""

    def __init__(
        self,
        group: Any,
        begun: Callable[[int, int], bool],
        begins: Callable[[Any, str, Sequence[Any]], bool],
    ) -> None:
        self.begins = begins
        self.counts = True
        self._group = group
        self._begun = begun
        self._replaced: dict[str, tuple[Any, Any]] = {}

    def replace(self, name: str, method: Callable[..., Any]) -> None:
        self._replaced[name] = vars(self._group)[name], _told(name, method, self)
        setattr(self._group, name, self._replaced[name][1])

    def begun(self, collectives: int, size: int, *, noted: bool) -> None:
        self.counts = self.counts and self._begun(collectives, size)
        if not (self.counts or noted):
            self.restore()

    def restore(self) -> None:
        for name, (method, own) in self._replaced.items():
            if getattr(self._group, name) is own:  # nobody has replaced it since
                setattr(self._group, name, method)


def _told(name: str, method: Callable[..., Any], watched: _Watched) -> Callable[..., Any]:
    def exchange(self: Any, *args: Any, **kwargs: Any) -> Any:
        noted = False
        with suppress(Exception):  # the exchange counts
            noted = watched.begins(self, name, args)
        if not watched.counts:
            if not noted:
                watched.restore()
            return method(self, *args, **kwargs)
        before = _begun(self)
        work = method(self, *args, **kwargs)
        watched.begun(_begun(self) - before, _bytes((*args, *kwargs.values())), noted=noted)
        return work

    # C++ calls a Python function that replaces its method, but not within itself, which it recognizes by this name.
    exchange.__code__ = exchange.__code__.replace(co_name=name)
    return functools.update_wrapper(exchange, method)


def _begun(group: Any) -> int:
    try:
        return int(group._get_sequence_number_for_group())  # noqa: SLF001
    except RuntimeError:  # its backend does not count
        return 0


def _bytes(values: Any) -> int:
    """The size of all tensors in nested lists."""
    if isinstance(values, list | tuple):
        return sum(map(_bytes, values))
    return getattr(values, "nbytes", 0)


def first_batches(
    dataloader: ModuleType, begins: Callable[[Any], Callable[[Any], bool] | None]
) -> tuple[type[Any], Callable[..., None]]:
    """For passes over loaders with workers: their class, and what is to be called after its ``__init__``.

    Args:
        dataloader: ``torch.utils.data.dataloader``.
        begins: called with a loader whose pass begins; what it returns is called with each of the next batches, until
            that returns whether it has seen enough. Nothing is left in the pass then; None: it is left alone.
    """

    def begun(batches: Any, loader: Any, *_args: object, **_kwargs: object) -> None:
        if (noted := begins(loader)) is None:
            return
        weak = weakref.ref(batches)  # else a pass that the script leaves early would not be freed at once

        def next_data() -> Any:
            found: Any = weak()
            batch = type(found)._next_data(found)  # noqa: SLF001
            if noted(batch):
                vars(found).pop("_next_data", None)
            return batch

        batches._next_data = next_data  # noqa: SLF001

    return dataloader._MultiProcessingDataLoaderIter, begun  # noqa: SLF001


def read_log_level() -> None:
    """Make torch read TORCH_CPP_LOG_LEVEL again, in a forked process. There is no Python API for that."""
    name = "TORCH_CPP_LOG_LEVEL"
    given = os.environ.get(name)
    os.environ.setdefault(name, "WARNING")  # torch's default, which it does not restore by itself
    with suppress(KeyError, OSError, AttributeError):  # not in all builds
        library = Path(str(sys.modules["torch"].__file__)).with_name("lib") / "libc10.so"
        ctypes.CDLL(str(library))._ZN3c1011initLoggingEv()  # noqa: SLF001  c10::initLogging()
    if given is None:
        del os.environ[name]
