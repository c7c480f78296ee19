"""torchrun's elastic agent, for agents."""

from __future__ import annotations

from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerGroup


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
