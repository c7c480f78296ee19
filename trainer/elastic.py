"""torchrun's own elastic agent with the few hooks that a job in a cluster needs.

Torch's agent starts, watches and restarts the ranks; the hooks decide what a failure costs, pass a drain on to the
ranks and wait for it, and tell the others who runs where. What never lives here: finding the other nodes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousHandler

from trainer.drain import Drain
from trainer.env import WORKER_DRAINED, NodeEnv
from trainer.failures import Budget, Failure, root_cause
from trainer.marker import finished
from trainer.publish import Reporter
from trainer.ranklogs import RankLogs
from trainer.rendezvous import LOST
from trainer.termination import Ending

MONITOR_INTERVAL: Final = 0.1  # seconds
EXIT_PATIENCE: Final = 300.0  # seconds that a node whose ranks are done waits for the others
MARKED_PATIENCE: Final = 10.0  # the same once the run is marked as finished
KILL_RESERVE: Final = 5.0  # seconds of the grace period that are kept for the way out after SIGKILL


def worker_spec(node: NodeEnv, command: list[str], handler: RendezvousHandler) -> WorkerSpec:
    """What torch's agent is to run. ``-P``: a ``trainer.py`` in the working folder must not hide this package."""
    return WorkerSpec(
        role="default",
        local_world_size=node.procs_per_node,
        entrypoint=sys.executable,
        args=("-P", "-m", "trainer.worker", *command),
        rdzv_handler=handler,
        max_restarts=node.max_restarts,
        monitor_interval=MONITOR_INTERVAL,
    )


class NodeAgent(LocalElasticAgent):
    """The elastic agent of one node, for as long as its rendezvous holds.

    Args:
        spec: from :func:`worker_spec`.
        node: the node.
        logs: takes the ranks' output.
        drain: whether the node was told to leave.
        budget: what failures are charged against; outlives this agent.
        reporter: tells the round's seats.
        tell: called with each round's failure: what happened, and what comes next.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        node: NodeEnv,
        logs: RankLogs,
        drain: Drain,
        budget: Budget,
        reporter: Reporter,
        tell: Callable[[Ending], None],
    ) -> None:
        super().__init__(spec, logs)
        self.ending = Ending(outcome="retryable", reason="the ranks have not run yet")  # how the last round failed
        self.joined = False  # whether it came through a rendezvous at all
        self._patience = max(node.grace_seconds - KILL_RESERVE, 1.0)
        self._node = node
        self._logs = logs
        self._drain = drain
        self._budget = budget
        self._reporter = reporter
        self._tell = tell
        self._told_ranks = False
        self._stop_deadline: float | None = None

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        with self._drain.interruptible():
            super()._rendezvous(worker_group)
            self.joined = True
            group: Any = worker_group  # torch declares what a rendezvous fills in as None
            self._reporter.begin(
                group.store,
                group_rank=group.group_rank,
                group_size=group.group_world_size,
                ranks=(group.workers[0].global_rank, group.workers[-1].global_rank),
                world=group.workers[0].world_size,
            )

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._stop_deadline = None
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"  # SIGTERM and SIGINT are the drain's,
        started: dict[int, Any] = super()._start_workers(worker_group)
        self._drain.install()  # and a torch that does not know this variable has just taken them
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._drain.requested and not self._told_ranks:
            self._told_ranks = True
            self._signal(signal.SIGTERM)
        if self._ranks_are_stopping():
            return RunResult(state=WorkerState.HEALTHY)
        result: RunResult = super()._monitor_workers(worker_group)
        if result.is_failed():
            self._logs.finish()
            restart = self._judge([_failure(rank, one) for rank, one in result.failures.items()])
            self._remaining_restarts = self._budget.max_restarts - self._budget.own + 1 if restart else 0
        return result

    def _stop_workers(self, worker_group: WorkerGroup) -> None:  # noqa: ARG002  torch's signature
        self._reporter.dissolve()
        self._shutdown(timeout=int(self._patience))

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        super()._shutdown(death_sig, timeout)
        self._logs.finish()

    def _exit_barrier(self) -> None:
        """Stay until the ranks of all nodes are done: on node 0 the store must outlive them."""
        group: Any = self._worker_group
        group.store.set(f"kit/done/{group.group_rank}", "")
        everyone = [f"kit/done/{rank}" for rank in range(group.group_world_size)]
        began = time.monotonic()
        with suppress(*LOST):  # node 0 has seen everyone and left
            while not group.store.check(everyone) and not self._drain.requested:
                # A node that was killed at the very end finds the run finished and never comes back.
                patience = MARKED_PATIENCE if self._run_is_marked_finished() else EXIT_PATIENCE
                if time.monotonic() > began + patience:
                    return
                time.sleep(MONITOR_INTERVAL)

    def _run_is_marked_finished(self) -> bool:
        folder = self._node.snapshot_dir
        return folder is not None and finished(folder, self._node.run_id)

    def _ranks_are_stopping(self) -> bool:
        """Whether to wait for ranks that take their snapshot: torch would stop all of them as soon as one is out."""
        codes = [handler.proc.poll() for handler in self._processes()]
        if None not in codes or not (self._drain.requested or WORKER_DRAINED in codes):
            return False
        now = time.monotonic()
        self._stop_deadline = self._stop_deadline or now + self._patience
        if now > self._stop_deadline:
            self._signal(signal.SIGKILL)
            return False
        return True

    def _judge(self, failures: list[Failure]) -> bool:
        """Decide what this round's failures mean; whether the ranks are started again."""
        cause = root_cause(failures)
        if self._drain.requested:
            self.ending = Ending(outcome="drained", reason="the node was told to leave", failure=None)
            return False
        restart = self._budget.charge(cause.kind)
        self.ending = _verdict(cause, restart=restart, budget=self._budget)
        self._tell(self.ending)
        return restart

    def _signal(self, number: signal.Signals) -> None:
        for handler in self._processes():
            if handler.proc.poll() is None:
                handler.proc.send_signal(number)

    def _processes(self) -> list[Any]:
        context: Any = self._pcontext  # a SubprocessContext, since the entry point is a program
        return list(context.subprocess_handlers.values()) if context else []


def _verdict(cause: Failure, *, restart: bool, budget: Budget) -> Ending:
    if cause.kind == "drained":
        return Ending(outcome="retryable", reason="the ranks were drained by another node")
    if cause.kind == "peer":
        what = f"rank {cause.rank} lost its peers ({cause.brief})"
        after = f"after {budget.peer} such losses without a new snapshot"
        return Ending(outcome="retryable", reason=what if restart else f"{what} {after}", failure=cause)
    what = f"rank {cause.rank} failed ({cause.brief})"
    if restart:
        return Ending(
            outcome="retryable", reason=f"{what}, restart {budget.own} of {budget.max_restarts}", failure=cause
        )
    return Ending(outcome="fatal", reason=f"{what}, no restart left of {budget.max_restarts}", failure=cause)


def _failure(rank: int, failure: ProcessFailure) -> Failure:
    """Torch's record of a failed process: the error file's content where the rank could write one."""
    told: Any = failure.message
    traceback = ""
    if isinstance(told, dict):
        error, traceback = told["message"], told["extraInfo"]["py_callstack"]
    elif failure.exitcode < 0:
        error = f"killed by {failure.signal_name()}"
    else:
        error = f"exit code {failure.exitcode}"
    return Failure(rank=rank, exit_code=failure.exitcode, error=error, traceback=traceback, time=failure.timestamp)
