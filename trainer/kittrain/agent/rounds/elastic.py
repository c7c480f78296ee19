"""torchrun's elastic agent, extended for jobs in a cluster.

Torch's agent decides when ranks are started and restarted. This module starts, watches and stops them, charges failures
to the restart budget, forwards a drain to the ranks, and publishes who runs where. It does not find the other nodes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState

from kitjob.buckets import timed_out
from kitjob.report import Progress
from kittrain.agent.processes.kept_ranks import KeptRanks, LivingRank
from kittrain.agent.processes.rank_logs import RankLogs
from kittrain.agent.processes.rank_watch import RankWatch
from kittrain.agent.processes.ranks import Process, RankFiles, RankProcesses, Starter
from kittrain.agent.processes.worker_group import MONITOR_INTERVAL, process_failures, rank_environment, worker_spec
from kittrain.agent.rendezvous.interface import LOST, JobEnded, Rendezvous, RoundOver
from kittrain.agent.report.drain_outcome import Asked, DrainOutcome, drained_reason
from kittrain.agent.report.failure_message import GivenUpError, failure_ending
from kittrain.agent.report.postmortem import Postmortem
from kittrain.agent.report.publish import Reporter
from kittrain.agent.rounds import stop_plan
from kittrain.agent.rounds.drain import Drain, DrainRequested
from kittrain.agent.rounds.read_ahead import ReadAhead
from kittrain.agent.rounds.stop_plan import StopPlan
from kittrain.job.env import WORKER_DRAINED, NodeEnv
from kittrain.outcome.elsewhere import where_lost
from kittrain.outcome.failures import SIGKILL_EXIT, Budget, Failure, newest_snapshot, root_cause
from kittrain.outcome.judge import EndedRound, Judge, Verdict
from kittrain.outcome.marker import seen_finished
from kittrain.outcome.termination import Ending, cut_short
from kittrain.system import heartbeat
from kittrain.system.child_processes import OrphanReaper, ranks_left
from kittrain.system.console import log
from kittrain.system.import_path import with_packages
from kittrain.system.processes import ignores
from kittrain.torch_private.elastic import ElasticAgent

EXIT_TIMEOUT: Final = 300.0  # seconds that a node whose ranks are done waits for the others, if these can do without it
FINISHED_EXIT_TIMEOUT: Final = 10.0  # the same, once the run is marked as finished
RAISED: Final = 1  # exit code of a rank whose script has raised an error
HUB_TIMEOUT: Final = 5.0  # for which a drained node that has finished waits until its hub has heard of the others' ends
FINISHED_JOIN_TIMEOUT: Final = 30.0  # seconds that a node of a finished run waits for others: lost ones stay away
ERROR_TIMEOUT: Final = 0.5  # seconds for all nodes' ranks to tell where they have lost one that has aborted
KILL_RESERVE: Final = 5.0  # seconds of the grace period reserved for the exit after SIGKILL


class NodeAgent(ElasticAgent):
    """The elastic agent of one node, for one connection to the rendezvous.

    Args:
        rendezvous: the connection's rendezvous handler.
        node: the node's environment.
        starter: starts the ranks.
        logs: receives their output.
        drain: the drain request.
        budget: the restart budget; outlives this agent.
        reporter: publishes the job's report.
        on_failure: called with each round's failure and its outcome.
        on_training: called a few times a second, unless the ranks have not taken a step since a round ended.
        kept: this node's ranks that outlive rounds, and connections; None: none does.
    """

    def __init__(  # noqa: PLR0913  what an agent works with
        self,
        rendezvous: Rendezvous,
        *,
        node: NodeEnv,
        starter: Starter,
        logs: RankLogs,
        drain: Drain,
        budget: Budget,
        reporter: Reporter,
        on_failure: Callable[[Ending], None],
        on_training: Callable[[], None],
        kept: KeptRanks | None = None,
    ) -> None:
        super().__init__(worker_spec(node, rendezvous))
        self.ending = Ending(outcome="retryable", reason="the ranks have not run yet")  # of the last failed round
        self._world = 0  # ranks of this round
        self.joined = False  # whether it ever completed a rendezvous
        self._handler = rendezvous
        self._stop_timeout = max(node.grace_period - KILL_RESERVE, 1.0)
        self._drain_outcome = DrainOutcome(timeout=self._stop_timeout)
        self._node = node
        self._starter = starter
        self._logs = logs
        self._drain = drain
        self._judge = Judge(budget, Path.cwd() if node.run.code else None)
        self._reporter = reporter
        self._on_failure = on_failure
        self._on_training = on_training
        self._history = reporter.history
        self._watch = RankWatch(
            rendezvous, logs, timeout=node.job.policy.hang_seconds, log=partial(log, node.node_index)
        )
        self._ranks = RankProcesses()
        self._kept = kept
        self._orphans = OrphanReaper()
        self._postmortem = Postmortem()
        self._files: list[RankFiles] = []
        self._drain_forwarded = False
        self._ignoring: list[int] = []  # ranks that ignore SIGTERM, when it was forwarded
        self._steps_when_asked = 0  # optimizer steps of a loop of the script's own, likewise
        self._agreed = False  # whether this node's ranks have said that the round's last step is taken

    def rendezvous(self, worker_group: WorkerGroup) -> None:
        """See the base class. A drain ends it.

        Raises:
            GivenUpError: ranks of this node left too many rounds that others still needed.
            JobEnded: training has finished, and the other nodes do not come back.
        """
        self._history.state("join", cause=self._handler.reason)
        with self._drain.interruptible():
            self._handler.waiting = partial(self._end_if_finished, time.monotonic(), self._handler.reason)
            self._handler.standing_by = self._stand_by
            super().rendezvous(worker_group)
            self.joined = True
            self._reporter.recovery.mark("form")
            group: Any = worker_group  # torch types the fields that a rendezvous sets as None
            self._world = group.workers[0].world_size
            self._reporter.begin(
                group.store,
                group_rank=group.group_rank,
                group_size=group.group_world_size,
                ranks=(group.workers[0].global_rank, group.workers[-1].global_rank),
                world=self._world,
            )
            self._charge_departure()

    def _end_if_finished(self, began: float, why: str) -> None:
        """End if others have: a node that is lost after training has nothing to do, so its replacement ends at once.

        What the script still did after its training is then cut short, which the reason says.
        """
        if self.joined and time.monotonic() > began + FINISHED_JOIN_TIMEOUT and self._marked():
            raise JobEnded(cut_short(why or "a node is lost"))

    @property
    def note(self) -> str:
        """What a rank that has ended well has said last, if that was an error; empty if none has."""
        return self._watch.note

    def _stand_by(self) -> None:
        """This node waits until it takes the place of one that is lost, however long that may be."""
        self._handler.waiting = ReadAhead(self._node.snapshot_dir)
        self._history.state("spare")
        log(self._node.node_index, "stands by, to take the place of a node that is lost")

    def _charge_departure(self) -> None:
        """Charge the last round to this node if one of its ranks left it with 0, and others lost it."""
        cause = self._reporter.departed
        if cause is None:
            return
        steps = self._reporter.steps
        verdict = self._judge.judge_departure(cause, script_steps=steps.in_script, loaded=steps.loaded)
        self._fails(verdict)
        if not verdict.restart:
            raise GivenUpError(self.ending)

    def start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """See the base class."""
        self._drain_outcome.begin(len(worker_group.workers))
        self._agreed = False
        ranks = [worker.global_rank for worker in worker_group.workers]
        kept = self._kept.begin() if self._kept else {}
        folder = self._logs.begin(ranks, kept={ranks[number]: one.files.rank for number, one in kept.items()})
        self._files = [RankFiles(folder, rank) for rank in ranks]
        self._ranks = RankProcesses()
        self._orphans = OrphanReaper()
        self._postmortem = Postmortem()
        began = self._history.ranks_start()
        restarts = worker_group.spec.max_restarts - self.remaining_restarts
        paths = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        for number, (worker, files) in enumerate(zip(worker_group.workers, self._files, strict=True)):
            if number in kept:
                kept[number].files.move(files)
            else:
                self._prepare(files)
            env = rank_environment(worker_group, worker, restarts=restarts, files=files)
            files.environment.write_text(json.dumps(with_packages(paths | env, self._node.packages)))
            self._ranks.add(self._begin(number, env, files, kept.get(number)))
        heartbeats = [files.heartbeat for files in self._files]
        self._watch.begin(dict(zip(ranks, zip(self._ranks.pids, heartbeats, strict=True), strict=True)), began=began)
        return dict(enumerate(self._ranks.pids))

    def _prepare(self, files: RankFiles) -> None:
        """Make the files that a rank that starts shares with this agent, besides its output."""
        heartbeat.prepare(files.heartbeat)
        if self._kept:
            os.mkfifo(files.rounds, 0o600)

    def _begin(self, number: int, env: Mapping[str, str], files: RankFiles, kept: LivingRank | None) -> Process:
        """Start a rank, or tell one that goes on which one it is now."""
        if kept is not None:
            kept.files = files
            if not kept.begin(env):
                os.kill(kept.process.pid, signal.SIGKILL)  # it does not listen: the next round replaces it
            return kept.process
        process = self._starter.start(env, files.pipe)
        if self._kept:
            self._kept.add(number, LivingRank(process=process, files=files))
        return process

    def _stop(self, plan: StopPlan) -> None:
        """Stop the ranks but for those that live on."""
        gone, now = self._ranks.gone, time.time()
        if self._kept and plan.lives_on != "none":
            self._kept.leave(agreed=plan.timeout if plan.lives_on == "after a step" else None)
            self._ranks.stop(plan.timeout, but=self._kept.pids)
            self._logs.finish([one.files.rank for one in self._kept.waiting.values()])
        else:
            self._ranks.stop(plan.timeout)
            self._logs.finish()
        if gone:  # since the last look at their exit codes, perhaps
            codes = enumerate(self._ranks.exit_codes())
            self._observe_departures([code if number in gone else None for number, code in codes], now)

    def monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """See the base class. Forwards a drain to the ranks, and stops them when they fail or hang."""
        self._await_news()
        codes = self._ranks.exit_codes()
        self._orphans.look()
        self._observe_departures(codes, time.time())
        self._drain_outcome.observe(codes, draining=self._drain.requested)
        if self._drain.requested and not self._drain_forwarded:
            self._forward_drain()
        if self._drain_outcome.pending(codes, draining=self._drain.requested):
            if self._drain_outcome.timed_out(time.monotonic()):
                self._ranks.signal(signal.SIGKILL)
            return RunResult(state=WorkerState.HEALTHY)
        if self._handler.culprit is not None:
            return self._hung(*self._handler.culprit)
        if any(codes) or (self._drain_outcome.unfinished(codes) and not self._finished()):
            return self._failed(worker_group)
        if None in codes:
            self._end_agreed_round()
            self._watch.poll()
            self._observe(worker_group, ended=False)
            return RunResult(state=WorkerState.HEALTHY)
        self._finish_watch()
        if not (self._watch.group or self._watch.steps or self._watch.script_steps) and (left := ranks_left()):
            self._reporter.warnings.gone_on(left)
        self._watch.listen()
        self._observe(worker_group, ended=True)
        self._history.ranks_end(self._watch, "barrier")
        return RunResult(
            state=WorkerState.SUCCEEDED,
            return_values=dict.fromkeys(worker.global_rank for worker in worker_group.workers),
        )

    def _await_news(self) -> None:
        """Notice at once that a rank has ended, that the hub has sent something, or that a drain is requested."""
        known = self._drain_forwarded  # then nothing is to be interrupted
        with suppress(DrainRequested), nullcontext() if known else self._drain.interruptible():
            self._ranks.await_end(MONITOR_INTERVAL, also=self._handler.descriptor)

    def _end_agreed_round(self) -> None:
        """End the round once its last step is taken: another node is drained, whose ranks may take longer to end."""
        if self._kept and not self._agreed and self._kept.wait:
            self._agreed = True
            with suppress(*LOST):
                self._handler.end_round(lost=False)

    def _observe_departures(self, codes: Sequence[int | None], now: float) -> None:
        """Keep which rank has ended with 0 by itself; after a signal to stop, that says nothing."""
        if not self._drain.requested:
            self._reporter.departures.saw_codes([files.rank for files in self._files], codes, now)

    def _finish_watch(self) -> None:
        """Read how far ranks that have ended had come, and what they had called."""
        self._watch.finish()
        self._reporter.steps.end(self._watch)
        self._reporter.departures.saw_calls(self._watch.calls, self._watch.begun)
        self._reporter.departures.saw_end(self._watch.last_words, self._watch.exit_place)

    def _observe(self, worker_group: WorkerGroup, *, ended: bool) -> None:
        """Publish what the ranks show, and tell the other nodes whether these train alone."""
        alone = self._watch.training_alone(worker_group.workers[0].world_size, ended=ended)
        with suppress(*LOST):  # then the round is over
            self._handler.report_alone(alone)
            if resume := self._reporter.files.resume:
                self._handler.report_resume(resume)
            if self._watch.saved:
                self._handler.report_save()
            if orders := self._watch.orders:
                self._handler.report_orders(orders)
        handler = self._handler
        self._reporter.spares = handler.spares
        self._reporter.standstill = None if ended else handler.standstill
        self._reporter.observe(
            self._watch,
            handler.step_timings,
            training_alone=handler.training_alone,
            resumes=handler.resumes,
            all_saved=handler.all_saved,
            orders=handler.orders,
        )
        if not self._reporter.recovery.goes_on:
            self._on_training()

    def _forward_drain(self) -> None:
        """Forward the drain: first to the other nodes, because their ranks may exit by agreement with ours."""
        self._drain_forwarded = True
        with suppress(*LOST):  # then there are no others
            self._handler.drain()
        ranks = zip(self._files, self._ranks.pids, strict=True)
        self._ignoring = [files.rank for files, pid in ranks if ignores(pid, signal.SIGTERM)]
        self._steps_when_asked = self._watch.script_steps
        self._ranks.signal(signal.SIGTERM)

    def _finished(self) -> bool:
        """Whether training has finished, by the run's or this node's marker."""
        return self._marked() or self._reported()

    def _reported(self) -> bool:
        """Whether a rank of this node has said that training has finished."""
        return any(files.finished.exists() for files in self._files)

    def _marked(self) -> bool:
        return seen_finished(self._node.snapshot_dir, self._node.run_id)

    def _failed(self, worker_group: WorkerGroup) -> RunResult:
        noticed = time.monotonic()
        self._watch.finish()
        self._history.ranks_end(self._watch, "stop")
        codes = self._ranks.exit_codes()
        self._orphans.look()
        self._observe_departures(codes, time.time())
        agreed = WORKER_DRAINED in codes or not any(codes)
        # As gloo ends a rank that is sent another collective's data: the others say where they were.
        if -signal.SIGABRT in codes and self._world > 1 and not agreed:
            self._ranks.await_another(ERROR_TIMEOUT, also=self._handler.descriptor)
        with suppress(*LOST):  # then the others know already
            self._handler.end_round(lost=not agreed, waited=self._waited(worker_group, codes))
        self._stop(stop_plan.of_failed(agreed=agreed, drained=self._drain.requested))
        self._resolve_failure(self._failures(worker_group), noticed=noticed)
        failures = process_failures(worker_group, self._ranks.exit_codes(), self._files)
        return RunResult(state=WorkerState.FAILED, failures=failures)

    def _waited(self, worker_group: WorkerGroup, codes: Sequence[int | None]) -> float:
        """Seconds that a rank had waited in a collective when that timed out; 0: none has."""
        failures = process_failures(worker_group, codes, self._files)
        return max((timed_out(str(one.message)) or 0.0 for one in failures.values()), default=0.0)

    def _failures(self, worker_group: WorkerGroup) -> list[Failure]:
        """Of the ranks that have ended with another code than 0."""
        failures = process_failures(worker_group, self._ranks.exit_codes(), self._files)
        return [self._postmortem.failure(rank, one, self._logs.last(rank)) for rank, one in failures.items()]

    def _ended(self, hung_at: int | None = None) -> EndedRound:
        """How far this node's ranks have come in the round that ends."""
        return EndedRound(
            world=self._world,
            library_steps=self._watch.steps,
            script_steps=self._watch.script_steps,
            loaded=self._reporter.steps.loaded,
            hung_at=hung_at,
            elsewhere=self._reporter.departures.elsewhere,
            before=self._reporter.elsewhere,
        )

    def _hung(self, culprit: int, step: int) -> RunResult:
        """All nodes' ranks hang; the hub has named the culprit."""
        noticed = time.monotonic()
        self._watch.finish()
        self._history.ranks_end(self._watch, "stop", self._handler.reason)
        self._history.fault(self._handler.reason, at=noticed, hang=True)
        self._stop(stop_plan.HUNG)
        hang = Failure(rank=culprit, exit_code=SIGKILL_EXIT, error=self._handler.reason, time=int(time.time()))
        self._resolve_failure([hang], noticed=noticed, hung_at=step)
        return RunResult(state=WorkerState.FAILED)

    def stop_workers(self, worker_group: WorkerGroup) -> None:
        """See the base class."""
        # Only group rank 0 logs why the round ended, unless it has logged a failure itself.
        if not (self._reporter.forming or worker_group.group_rank) and self._handler.reason:
            log(self._node.node_index, self._handler.reason)
        if not self._reporter.departures.explained:  # else they were stopped
            self._observe_departures(self._ranks.exit_codes(), time.time())
        self._watch.finish()
        self._history.ranks_end(self._watch, "stop", self._handler.reason)
        self._reporter.round_ended(self._handler.reason, failed=self._handler.lost)
        self._shut_down(goes_on=True)
        self._finish_watch()
        raised = RAISED in self._ranks.exit_codes()  # before they were stopped; else there is nothing to read here
        failures = self._failures(worker_group) if raised or self._drain.requested else []
        self._reporter.departures.elsewhere = where_lost(failures)
        self._judge.note(failures, self._ended())
        if self._drain.requested and self.ending.outcome != "drained":  # another node's ranks ended first
            self._drain.reason = self._drained(failures)
        self._reporter.recovery.mark("stop")

    def shutdown(self) -> None:
        """See the base class: at once if ranks are lost, else within the grace period."""
        self._shut_down(goes_on=False)

    def _shut_down(self, *, goes_on: bool) -> None:
        """Stop the ranks; if this agent goes on, those of them go on that can."""
        self._watch.finish()
        self._history.ranks_end(self._watch, "stop", self._handler.reason)
        self._stop(
            stop_plan.of_ended(
                drained=self._drain.requested or WORKER_DRAINED in self._ranks.exit_codes(),
                lost=self._handler.lost,
                waiting=bool(self._kept and self._kept.waiting),
                goes_on=goes_on,
                of_library=bool(self._watch.steps),
                time_left=max(self._stop_timeout - self._drain.age(), 0.0),
            )
        )

    def exit_barrier(self) -> None:
        """Wait until the ranks of all nodes are done: the store and the hub must outlive them, however long that takes.

        What a script does after its training may take any time. Nodes that are lost meanwhile are not waited for.

        Raises:
            RoundOver: the ranks of another node have to continue, and these with them.
            DrainRequested: a drain was requested, and other nodes still need what this one hosts.
        """
        began = time.monotonic()
        try:
            while not self._handler.done(timeout=MONITOR_INTERVAL):
                self._reporter.standstill = self._handler.standstill  # of the others, perhaps because of these
                # A node that was killed at the very end finds the run finished and does not rejoin.
                marked = self._marked()
                if self._drain.requested and self._handler.hosts and not marked:
                    late = time.monotonic() > began + min(HUB_TIMEOUT, self._node.grace_period / 4)
                    if late or not self._reported():
                        raise DrainRequested
                timeout = FINISHED_EXIT_TIMEOUT if marked else max(EXIT_TIMEOUT, self._node.grace_period)
                over = time.monotonic() > began + timeout and not self._handler.hosts  # others' ranks would be stopped
                if self._drain.requested or over:
                    return
            self._reporter.standstill = None
            self._reporter.observe(
                self._watch,
                training_alone=self._handler.training_alone,
                all_saved=self._handler.all_saved,
                orders=self._handler.orders,
            )
        except RoundOver:
            if not self._marked():
                raise
        except LOST:  # node 0 has seen all nodes and exited
            pass

    def _reached(self) -> Progress:
        """How far training is: as rank 0 reports it, else as this node's ranks and the snapshots show."""
        known = self._reporter.progress
        if known.step is not None or not self._watch.steps:
            return known
        newest = newest_snapshot(self._node.snapshot_dir)
        return Progress(step=self._watch.steps, snapshot_step=newest[1] if newest else None)

    def _drained(self, failures: list[Failure]) -> str:
        """Why this node is drained, and what its ranks lost if they failed."""
        return drained_reason(
            self._reached(),
            why=self._drain.reason,
            grace=self._node.grace_period,
            late=self._drain.age() > self._stop_timeout / 2,
            failure=root_cause(failures) if failures else None,
            asked=Asked(
                ignoring=self._ignoring,
                steps=self._watch.script_steps - self._steps_when_asked,
                seconds=self._drain.age(),
            ),
        )

    def _resolve_failure(self, failures: list[Failure], *, noticed: float, hung_at: int | None = None) -> None:
        """Find the root cause, charge the budget, and decide whether torch's agent restarts the ranks."""
        self.remaining_restarts = 0
        if self._drain.requested:
            self.ending = Ending(outcome="drained", reason=self._drained(failures), failure=None)
            return
        self._reporter.departures.saw_failure(root_cause(failures), time.time())
        self._reporter.departures.elsewhere = where_lost(failures)
        self._finish_watch()
        self._reporter.observe(self._watch, training_alone=self._handler.training_alone, orders=self._handler.orders)
        verdict = self._judge.judge(failures, self._ended(hung_at))
        self._fails(verdict)
        self._reporter.round_ended(self.ending.reason, failed=True, noticed=noticed)
        if verdict.restart:
            budget = self._judge.budget  # torch's agent takes one off for each restart, and ends at zero
            self.remaining_restarts = budget.max_restarts - budget.own + 1

    def _fails(self, verdict: Verdict) -> None:
        """Tell what this node's round has failed of, and what follows."""
        self.ending = failure_ending(verdict, self._judge.budget)
        self._on_failure(self.ending)
        self._reporter.failed(verdict.cause)
