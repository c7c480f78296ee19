"""torchrun's elastic agent and rendezvous, for agents."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerGroup
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    _Action,
    _RendezvousContext,
)


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
