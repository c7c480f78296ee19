"""torchrun's own elastic agent with what a job in a cluster needs of it.

Torch's agent decides when ranks are started, restarted and given up; here they are started, watched and stopped, it is
decided what a failure costs, a drain is passed on to the ranks and waited for, and the others are told who runs where.
What never lives here: finding the other nodes.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from kittrain.env import WORKER_DRAINED, NodeEnv
from kittrain.node.drain import Drain, DrainRequested
from kittrain.node.leaving import Leaving
from kittrain.node.postmortem import Postmortem
from kittrain.node.publish import Reporter
from kittrain.node.ranklogs import RankLogs
from kittrain.node.ranks import RankFiles, Ranks, Starter, rank_environment
from kittrain.node.verdict import verdict
from kittrain.node.watch import Watch
from kittrain.outcome.failures import Budget, Failure, root_cause
from kittrain.outcome.marker import seen_finished
from kittrain.outcome.termination import Ending
from kittrain.rendezvous.backend import LOST, Rendezvous, RoundOver
from kittrain.system import heartbeat
from kittrain.system.console import say

MONITOR_INTERVAL: Final = 0.05  # seconds between two looks at ranks and rendezvous
EXIT_PATIENCE: Final = 300.0  # seconds that a node whose ranks are done waits for the others
MARKED_PATIENCE: Final = 10.0  # the same once the run is marked as finished
KILL_RESERVE: Final = 5.0  # seconds of the grace period that are kept for the way out after SIGKILL
SIGKILL_EXIT: Final = -9  # what a rank that hangs ends with
LOST_PATIENCE: Final = 1.0  # seconds for the last words of ranks whose group is broken: they may hang in a collective


def worker_spec(node: NodeEnv, rendezvous: Rendezvous) -> WorkerSpec:
    """What torch's agent is told of the ranks."""
    return WorkerSpec(
        role="default",
        local_world_size=node.procs_per_node,
        entrypoint=sys.executable,
        rdzv_handler=rendezvous,
        max_restarts=node.max_restarts,
        monitor_interval=MONITOR_INTERVAL,
    )


class NodeAgent(SimpleElasticAgent):
    """The elastic agent of one node, for as long as its rendezvous holds.

    Args:
        rendezvous: one connection's.
        node: the node.
        starter: starts the ranks.
        logs: takes their output.
        drain: whether the node was told to leave.
        budget: what failures are charged against; outlives this agent.
        reporter: tells the round's seats.
        tell: called with each round's failure: what happened, and what comes next.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        *,
        node: NodeEnv,
        starter: Starter,
        logs: RankLogs,
        drain: Drain,
        budget: Budget,
        reporter: Reporter,
        tell: Callable[[Ending], None],
    ) -> None:
        super().__init__(worker_spec(node, rendezvous))
        self.ending = Ending(outcome="retryable", reason="the ranks have not run yet")  # how the last round failed
        self.joined = False  # whether it came through a rendezvous at all
        self._handler = rendezvous
        self._patience = max(node.grace_period - KILL_RESERVE, 1.0)
        self._leaving = Leaving(patience=self._patience)
        self._node = node
        self._starter = starter
        self._logs = logs
        self._drain = drain
        self._budget = budget
        self._reporter = reporter
        self._tell = tell
        self._watch = Watch(rendezvous, logs, timeout=node.hang_timeout, say=partial(say, node.node_index))
        self._ranks = Ranks()
        self._postmortem = Postmortem()
        self._files: list[RankFiles] = []
        self._told_ranks = False

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        with self._drain.interruptible():
            super()._rendezvous(worker_group)
            self.joined = True
            self._reporter.recovery.mark("form")
            group: Any = worker_group  # torch declares what a rendezvous fills in as None
            self._reporter.begin(
                group.store,
                group_rank=group.group_rank,
                group_size=group.group_world_size,
                ranks=(group.workers[0].global_rank, group.workers[-1].global_rank),
                world=group.workers[0].world_size,
            )

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._leaving.begin(len(worker_group.workers))
        ranks = [worker.global_rank for worker in worker_group.workers]
        folder = self._logs.begin(ranks)
        self._files = [RankFiles(folder, rank) for rank in ranks]
        self._ranks = Ranks()
        self._postmortem = Postmortem()
        restarts = worker_group.spec.max_restarts - self._remaining_restarts
        hearts = [heartbeat.prepare(files.heart) for files in self._files]
        for worker, files in zip(worker_group.workers, self._files, strict=True):
            env = rank_environment(worker_group, worker, restarts=restarts, files=files)
            self._ranks.add(self._starter.start(env, files.pipe))
        self._watch.begin(dict(zip(ranks, zip(self._ranks.pids, hearts, strict=True), strict=True)))
        return dict(enumerate(self._ranks.pids))

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        codes = self._ranks.codes()
        self._leaving.look(codes, told=self._drain.requested)
        if self._drain.requested and not self._told_ranks:
            self._tell_ranks()
        if self._leaving.pending(codes, told=self._drain.requested):
            if self._leaving.late(time.monotonic()):
                self._ranks.signal(signal.SIGKILL)
            return RunResult(state=WorkerState.HEALTHY)
        if self._handler.culprit is not None:
            return self._hung(*self._handler.culprit)
        if any(codes) or (self._leaving.unfinished(codes) and not self._finished()):
            return self._failed(worker_group)
        if None in codes:
            self._watch.look()
            self._reporter.recovery.look(self._watch.first)
            self._reporter.tempo(self._handler.step_timings)
            return RunResult(state=WorkerState.HEALTHY)
        return RunResult(
            state=WorkerState.SUCCEEDED,
            return_values=dict.fromkeys(worker.global_rank for worker in worker_group.workers),
        )

    def _tell_ranks(self) -> None:
        """Pass on that this node was told to leave: to the others first, whose ranks may end by agreement with ours."""
        self._told_ranks = True
        with suppress(*LOST):  # then there are none
            self._handler.drain()
        self._ranks.signal(signal.SIGTERM)

    def _finished(self) -> bool:
        """Whether training has finished, as ranks of this node have said."""
        return self._marked() or any(files.finished.exists() for files in self._files)

    def _marked(self) -> bool:
        return seen_finished(self._node.snapshot_dir, self._node.run_id)

    def _failed(self, worker_group: WorkerGroup) -> RunResult:
        noticed = time.monotonic()
        codes = self._ranks.codes()
        agreed = WORKER_DRAINED in codes or not any(codes)
        with suppress(*LOST):  # then everyone knows already
            self._handler.end_round(lost=not agreed)
        self._ranks.stop(LOST_PATIENCE)
        self._logs.finish()
        failures = {}
        for worker, code, files in zip(worker_group.workers, self._ranks.codes(), self._files, strict=True):
            if code:
                failures[worker.global_rank] = ProcessFailure(worker.local_rank, worker.id, code, str(files.error))
        told = [self._postmortem.failure(rank, one, self._logs.last(rank)) for rank, one in failures.items()]
        self._judge(told, noticed=noticed)
        return RunResult(state=WorkerState.FAILED, failures=failures)

    def _hung(self, culprit: int, step: int) -> RunResult:
        """The ranks of all nodes stand still, and have told why."""
        noticed = time.monotonic()
        self._ranks.stop(LOST_PATIENCE)
        self._logs.finish()
        hang = Failure(rank=culprit, exit_code=SIGKILL_EXIT, error=self._handler.reason, time=int(time.time()))
        self._judge([hang], noticed=noticed, step=step)
        return RunResult(state=WorkerState.FAILED)

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        # One node tells for all why a round is over, if it does not know better.
        if not (self._reporter.forming or worker_group.group_rank) and self._handler.reason:
            say(self._node.node_index, self._handler.reason)
        self._reporter.dissolve(self._handler.reason)
        self._shutdown()
        self._reporter.recovery.mark("stop")

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:  # noqa: ARG002  torch's
        agreed = self._drain.requested or WORKER_DRAINED in self._ranks.codes() or not self._handler.lost
        self._ranks.stop(self._patience if agreed else LOST_PATIENCE)
        self._logs.finish()

    def _exit_barrier(self) -> None:
        """Stay until the ranks of all nodes are done: on node 0 the store must outlive them.

        Raises:
            RoundOver: the ranks of another node have to go on, and these with them.
            DrainRequested: this node was told to leave, and others still need what it hosts.
        """
        began = time.monotonic()
        try:
            while not self._handler.done(timeout=MONITOR_INTERVAL):
                # A node that was killed at the very end finds the run finished and never comes back.
                marked = self._marked()
                if self._drain.requested and self._node.hosts_rendezvous and not marked:
                    raise DrainRequested
                patience = MARKED_PATIENCE if marked else max(EXIT_PATIENCE, self._node.grace_period)
                if self._drain.requested or time.monotonic() > began + patience:
                    return
        except RoundOver:
            if not self._marked():
                raise
        except LOST:  # node 0 has seen everyone and left
            pass

    def _judge(self, failures: list[Failure], *, noticed: float, step: int | None = None) -> None:
        """Decide what this round's failures mean, and whether torch's agent starts the ranks again."""
        self._remaining_restarts = 0
        if self._drain.requested:
            self.ending = Ending(outcome="drained", reason="the node was told to leave", failure=None)
            return
        cause = root_cause(failures)
        restart = self._budget.charge(cause.kind, step=step) and not cause.cause.permanent
        self.ending = verdict(cause, restart=restart, budget=self._budget)
        self._tell(self.ending)
        self._reporter.failed(cause)
        self._reporter.dissolve(self.ending.reason, noticed=noticed)
        if restart:
            self._remaining_restarts = self._budget.max_restarts - self._budget.own + 1
