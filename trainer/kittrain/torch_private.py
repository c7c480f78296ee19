"""Every name of torch that kittrain uses and torch does not document, behind a public one.

A new version of torch may lack any of them; ``tests/trainer/test_torch_private.py`` tells which, and keeps them out of
the other modules. What is documented does not belong here.
"""

from __future__ import annotations

import copy
import ctypes
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerGroup
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    _Action,
    _RendezvousContext,
)
from torch.utils.data import DataLoader

# Torch imports it at a rank's first optimizer step, which takes 1.3 s. No public name imports it.
IMPORTED_AT_FIRST_STEP: Final = "torch._dynamo"


class ElasticAgent(SimpleElasticAgent):
    """Torch's elastic agent with its hooks as public methods, which do what torch does unless they are overridden.

    Torch documents the agent, but not how to start the workers in another way than its own.
    """

    @property
    def remaining_restarts(self) -> int:
        """How often torch's agent restarts the workers before it gives up."""
        return self._remaining_restarts

    @remaining_restarts.setter
    def remaining_restarts(self, count: int) -> None:
        self._remaining_restarts = count

    def rendezvous(self, worker_group: WorkerGroup) -> None:
        """Form a round with the other nodes, and set the ranks of the group's workers."""
        super()._rendezvous(worker_group)

    def start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the workers; returns their process ids by local rank."""
        raise NotImplementedError

    def monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """The workers' state. Called at every monitor interval."""
        raise NotImplementedError

    def stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers, before a restart or because they have failed."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Stop what is left, at the end of the run."""
        raise NotImplementedError

    def exit_barrier(self) -> None:
        """Wait until the workers of all nodes have succeeded."""
        super()._exit_barrier()  # type: ignore[no-untyped-call]

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self.rendezvous(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        return self.start_workers(worker_group)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        return self.monitor_workers(worker_group)

    def _stop_workers(self, worker_group: WorkerGroup, *_: Any, **__: Any) -> None:  # torch 2.6 also passes is_restart
        self.stop_workers(worker_group)

    def _shutdown(self, *_: Any, **__: Any) -> None:  # a signal and a timeout, which depend on torch's version
        self.shutdown()

    def _exit_barrier(self) -> None:
        self.exit_barrier()


class LeavableRendezvous(DynamicRendezvousHandler):
    """Torch's rendezvous over a store, which one node can leave: torch can only close it for all."""

    @property
    def store(self) -> dist.Store:
        """The store without a round's prefix, as given to ``from_backend``."""
        return self._store

    @property
    def was_closed(self) -> bool:
        """Whether it was closed, by the state that was read last. ``is_closed`` sends another request."""
        return bool(self._state_holder.state.closed)

    def remove_this_node(self, *, timeout: float) -> None:
        """Stop this node's heartbeats, and remove it from the shared state.

        Raises:
            RendezvousError: the store cannot be reached, or not within ``timeout`` seconds.
        """
        self._stop_heartbeats()
        self._op_executor.run(_leave, time.monotonic() + timeout)


def _leave(context: _RendezvousContext, deadline: float) -> _Action:
    state = context.state
    members_of = (
        (state.participants, _Action.REMOVE_FROM_PARTICIPANTS),
        (state.wait_list, _Action.REMOVE_FROM_WAIT_LIST),
        (state.redundancy_list, _Action.REMOVE_FROM_REDUNDANCY_LIST),
    )
    mine = (action for members, action in members_of if context.node in members)
    return next(mine, _Action.FINISH) if time.monotonic() < deadline else _Action.ERROR_TIMEOUT


def set_collective_timeout(timeout: timedelta) -> None:
    """Set the timeout of the default process group's collectives. Newer versions of torch have a public name for it."""
    public = getattr(dist, "set_timeout", None)
    (public or distributed_c10d._set_pg_timeout)(timeout)  # noqa: SLF001


def ignored_by_ddp(model: nn.Module) -> Sequence[str]:
    """The parameters and buffers that DDP neither broadcasts nor averages, by name, as set by the model's author."""
    names: Sequence[str] = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
    return names


def ignore_in_ddp(model: nn.Module, names: Sequence[str]) -> None:
    """Set what ``ignored_by_ddp`` returns, before DDP wraps the model."""
    model._ddp_params_and_buffers_to_ignore = names  # type: ignore[assignment]  # noqa: SLF001


def fake_tensors() -> AbstractContextManager[object]:
    """Within it, new tensors have a type and a shape, but no memory.

    ``torch.save`` writes such tensors like real ones without their bytes; it does not do so with meta tensors.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415  agents do not need it

    mode: AbstractContextManager[object] = FakeTensorMode()
    return mode


def read_log_level() -> None:
    """Make torch read TORCH_CPP_LOG_LEVEL again, in a forked process. There is no Python API for that."""
    name = "TORCH_CPP_LOG_LEVEL"
    given = os.environ.get(name)
    os.environ.setdefault(name, "WARNING")  # torch's default, which it does not restore by itself
    with suppress(OSError, AttributeError):  # not in all builds
        library = Path(torch.__file__).with_name("lib") / "libc10.so"
        ctypes.CDLL(str(library))._ZN3c1011initLoggingEv()  # noqa: SLF001  c10::initLogging()
    if given is None:
        del os.environ[name]


def with_sampler(loader: DataLoader[Any], sampler: Any) -> DataLoader[Any]:
    """A copy of a loader with another sampler, of batches if the loader has one of those, and workers of its own.

    DataLoader's constructor arguments cannot be read back, in particular those of subclasses, and it forbids to set a
    sampler later on, as an iteration could have begun.
    """
    copied = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    object.__setattr__(copied, name, sampler)
    object.__setattr__(copied, "_iterator", None)
    return copied
