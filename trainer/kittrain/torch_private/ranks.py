"""Process groups, DDP, loaders and tensors, for ranks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.utils.data import DataLoader


def set_collective_timeout(timeout: timedelta) -> None:
    """Set the timeout of the default process group's collectives. Newer versions of torch have a public name for it."""
    public = getattr(dist, "set_timeout", None)
    (public or distributed_c10d._set_pg_timeout)(timeout)  # noqa: SLF001


def around_new_groups(around: Callable[[], AbstractContextManager[Callable[[object], None]]]) -> None:
    """Make each process group within a context manager; the default one, too. Torch has no hook for it.

    Args:
        around: yields what is called with each group.
    """
    make: Callable[..., Any] = distributed_c10d._new_process_group_helper  # noqa: SLF001

    @functools.wraps(make)
    def make_within(*args: Any, **kwargs: Any) -> Any:
        with around() as made:
            group, store = make(*args, **kwargs)
            made(group)
            return group, store

    distributed_c10d._new_process_group_helper = make_within  # noqa: SLF001


def has_one_group() -> bool:
    """Whether the default process group is the only one."""
    return len(distributed_c10d._world.pg_map) == 1  # noqa: SLF001


def ignored_by_ddp(model: nn.Module) -> Sequence[str]:
    """The parameters and buffers that DDP neither broadcasts nor averages, by name, as set by the model's author."""
    names: Sequence[str] = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
    return names


def ignore_in_ddp(model: nn.Module, names: Sequence[str]) -> None:
    """Set what ``ignored_by_ddp`` returns, before DDP wraps the model."""
    model._ddp_params_and_buffers_to_ignore = names  # type: ignore[assignment]  # noqa: SLF001


def backward(ends: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
    """``torch.autograd.backward`` of plain tensors, without the checks that take torch some 20 us.

    Args:
        ends: of the graph.
        gradients: one for each, of its shape, type and device.
    """
    keep_graph = create_graph = False
    torch.autograd.graph._engine_run_backward(  # noqa: SLF001
        ends, gradients, keep_graph, create_graph, (), allow_unreachable=True, accumulate_grad=True
    )


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each tensor to one of its shape, in one call."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))


def fake_tensors() -> AbstractContextManager[object]:
    """Within it, new tensors have a type and a shape, but no memory.

    ``torch.save`` writes such tensors like real ones without their bytes; it does not do so with meta tensors.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415  the commands for snapshots rarely need it

    mode: AbstractContextManager[object] = FakeTensorMode()
    return mode


def with_sampler(loader: DataLoader[Any], sampler: Any) -> DataLoader[Any]:
    """A copy of a loader with another sampler, of batches if the loader has one of those, and workers of its own.

    DataLoader's constructor arguments cannot be read back, in particular those of subclasses, and it forbids to set a
    sampler later on, as an iteration could have begun.
    """
    copied = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    object.__setattr__(copied, name, sampler)
    object.__setattr__(copied, "_iterator", None)
    object.__setattr__(copied, "in_order", True)  # in any other order, what was taken would not be the first ones
    return copied


def has_read_to_the_end(batches: object) -> bool:
    """Whether a DataLoader's iterator without workers has used up its iterable data set, for a last, short batch."""
    return bool(getattr(getattr(batches, "_dataset_fetcher", None), "ended", False))


def has_workers_left(loader: DataLoader[Any]) -> bool:
    """Whether a loader with ``persistent_workers`` has workers running."""
    return bool(loader.persistent_workers and loader._iterator is not None)  # noqa: SLF001
