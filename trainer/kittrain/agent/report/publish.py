"""Publishes the job's report, from the agent with group rank 0: which node runs which ranks, and the progress."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from kitjob.record import replace
from kitjob.report import CopiesReport, MirrorReport, NodeAssignment, RankProgress, Report, Standstill
from kittrain.agent.rendezvous.resumes import Resume
from kittrain.agent.report.agreement import AGREED, Agreed, Known, agree
from kittrain.agent.report.backup_reporter import GROUP_RANKS, BackupReporter, moment
from kittrain.agent.report.departures import Departures
from kittrain.agent.report.failure_log import FailureLog
from kittrain.agent.report.former_report import FormerReport
from kittrain.agent.report.history import History
from kittrain.agent.report.observed import Ranks, Store
from kittrain.agent.report.private_files import PrivateFiles
from kittrain.agent.report.recovery import RecoveryClock
from kittrain.agent.report.report_sinks import Sink
from kittrain.agent.report.report_writer import ReportWriter
from kittrain.agent.report.resumed_steps import ResumedSteps
from kittrain.agent.report.step_times import StepTimes
from kittrain.agent.report.steps_seen import StepsSeen
from kittrain.agent.report.warnings_seen import WarningsSeen
from kittrain.job.env import NodeEnv
from kittrain.outcome.failures import BRIEF, Failure
from kittrain.outcome.termination import Ending
from kittrain.system.console import log
from kittrain.system.sample_orders import SampleOrder

CLOCK_READS: Final = 2


class Mirror(Protocol):
    """What copies the snapshots to an object store."""

    def lead(self, *, leads: bool) -> None:
        """A round begins; ``leads``: with rank 0 here."""

    def watch(self) -> None:
        """Called often."""

    @property
    def report(self) -> MirrorReport | None:
        """How far it is."""

    @property
    def holding(self) -> str:
        """Why the node has not ended yet, although its training has."""


class Copies(Protocol):
    """What keeps copies of other nodes' shards."""

    @property
    def address(self) -> str:
        """Where other nodes reach it; empty: nowhere."""

    def begin(self, number: int, places: Sequence[Mapping[str, Any]]) -> None:
        """A round begins, with these nodes."""

    def watch(self) -> None:
        """Called often."""

    @property
    def report(self) -> CopiesReport | None:
        """How far it is."""


class Reporter:
    """Collects the report of each round; only the agent with group rank 0 writes it.

    Args:
        node: its environment.
        sink: of the reports; None: they go nowhere.
        progress_file: that rank 0 writes in the library's loop.
        history: of the run; None: one without a volume.
        mirror: the copy of the snapshots in an object store; None: there is none.
        copies: the copies of other nodes' shards; None: it keeps none.

    Attributes:
        history: see above.
        recovery: the clock of the recovery that goes on, or of the last one.
        departures: how this node's ranks have left the round.
        departed: the failure that ended the last round, if one of this node's ranks did by leaving.
        elsewhere: where another node's rank was as it lost others in the round before; empty: unknown.
        steps: how far the ranks are.
        warnings: what is probably wrong with them.
        files: their checkpoints in folders of the node's own.
        standstill: as ``Rendezvous.standstill``.
        spares: as ``Rendezvous.spares``.
    """

    def __init__(
        self,
        node: NodeEnv,
        *,
        sink: Sink | None,
        progress_file: Path,
        history: History | None = None,
        mirror: Mirror | None = None,
        copies: Copies | None = None,
    ) -> None:
        self._node = node
        self._mirror, self._copies = mirror, copies
        self._sink = sink
        self.history = history or History(node, self._log)
        self._writer = ReportWriter(sink, self.history, self._now, self._log) if sink else None
        self._backup = BackupReporter(node.run_id, sink, self.history.tail) if sink else None
        self._stands_in = False  # whether this node tells that a round has ended, if the leader does not
        self._round, self._ranks, self._world = 0, (0, -1), 1
        self._leads = False  # whether this node has group rank 0
        self._unknown = False  # whether no agent knows how far the last round's ranks were: its leader is gone
        self.recovery = RecoveryClock()
        self.departures = Departures()  # of the last round
        self.departed: Failure | None = None
        self.elsewhere = ""
        self._left: Failure | None = None  # the same, of any node's ranks
        self._failures = FailureLog(node.node_index)
        self._restarts = 0  # of the ranks, after a failure
        self._failed = False  # the last round
        self.steps = StepsSeen(progress_file)
        self.warnings = WarningsSeen(self._log)
        self.files = PrivateFiles(node)
        self._times = StepTimes(self._log)
        self.standstill: tuple[float, str] | None = None
        self.spares: Sequence[int] = ()
        self._before = FormerReport(sink, node.run_id) if sink and node.node_index == 0 else None
        self._report: Report | None = None  # if this node has group rank 0
        self._former: Report | None = None  # of the node that had it, if this one has taken its place at the end
        self._round_over = self._ended = False

    def begin(self, store: Store, *, group_rank: int, group_size: int, ranks: tuple[int, int], world: int) -> int:
        """Exchange what is known with the other nodes; returns the round's number.

        Raises:
            torch.distributed.DistError: the store or another node is lost.
        """
        self._ranks, self._world = ranks, world
        if self._backup:
            self._backup.end()
        if self._before and group_rank == 0 and not self._round:
            self.steps.take_up(self._before.read())
        known = self._known(assignment(self._node, group_rank, ranks))
        agreed, told = agree(store, known, rank=group_rank, size=group_size)
        self._failures.merge(failure for one in told for failure in one.failures)
        self._leads, self._stands_in = group_rank == 0, group_rank in GROUP_RANKS
        self._restart(agreed, size=group_size)
        self._measure_clock(store)
        self.history.joined(self._round, world=world, nodes=group_size)
        self._lead({str(one.index): one.assignment for one in told})
        return self._round

    def _known(self, assigned: NodeAssignment) -> Known:
        return Known(
            index=self._node.node_index,
            assignment=assigned,
            round=self._round,
            restarts=self._restarts + self._failed,
            failures=tuple(self._failures.known),
            departures=self.departures.facts,
            loaded=self.steps.loaded,
            taken=tuple(self.steps.taken.marks),
            saves=tuple(self.steps.taken.saves),
            saved=self.steps.saved,
            reached=self.steps.reached if self._leads else 0,
            finished=self.steps.finished,
            copies=self._copies.address if self._copies else "",
        )

    def _restart(self, agreed: Agreed, *, size: int) -> None:
        """A round of so many nodes begins."""
        self._round, self._restarts, self._failed = agreed.round, agreed.restarts, False
        if self._mirror:
            self._mirror.lead(leads=self._leads)
        if self._copies:
            self._copies.begin(self._round, agreed.places)
        self.steps.restart(agreed)
        self.elsewhere = agreed.elsewhere
        self._unknown = not agreed.reached
        self.files.begin()
        self.warnings.begin()
        self._times.begin()
        self._explain(Failure(**agreed.departed) if agreed.departed else None)
        self.departures = Departures(round=self._round, size=size)
        self._round_over, self.standstill, self.spares = False, None, ()

    def _measure_clock(self, store: Store) -> None:
        """Compare this node's clock with node 0's, by a key that is set, so that the answer comes at once."""
        for _ in range(CLOCK_READS):
            store.get(AGREED)
        if (clock := getattr(store, "clock", None)) is not None:
            self.history.clock(**clock)

    def _explain(self, departed: Failure | None) -> None:
        """Take which rank ended the last round by leaving; ``departures`` are still those of that round."""
        self._left = departed
        self.departed = departed if departed and self.departures.has(departed.rank) else None
        if departed:
            self.recovery.explain(f"rank {departed.rank} {departed.error}")

    def _lead(self, nodes: dict[str, NodeAssignment]) -> None:
        """Report this round, with these nodes, if this one leads it; else another one does."""
        if not (self._leads and self._writer):
            self._report = None
            return
        if not self._report:
            self.steps.forget_file()
        self._report = Report(
            run=self._node.run_id,
            round=self._round,
            formed=time.time(),
            world_size=self._world,
            restarts=self._restarts,
            nodes=nodes,
        )
        self._writer.begin(self._remember if self._unknown else None)

    def _remember(self, sink: Sink) -> None:
        """Take the step that a former leader of this run has reported last: that agent is gone."""
        try:
            former = sink.last()
            if former and former.run == self._node.run_id and not former.progress.of_own_loop:
                self.steps.resumed.remember(ResumedSteps.reached(former.progress))
        except OSError:
            return  # only a number is missing, and the first report says what is wrong with the sink

    @property
    def stored(self) -> tuple[MirrorReport | None, CopiesReport | None]:
        """How far the copies of the snapshots are; may be read from another thread."""
        return self._mirror.report if self._mirror else None, self._copies.report if self._copies else None

    @property
    def forming(self) -> bool:
        """Whether the round has ended and the next one is forming."""
        return self._round_over

    @property
    def progress(self) -> RankProgress:
        """How far the ranks are, on the node with rank 0; else what this node's ranks show."""
        return self.steps.progress

    @property
    def warning(self) -> str:
        """What is probably not as it should be, although the ranks run or have succeeded; it was logged."""
        if self._mirror and self._mirror.holding:
            return self._mirror.holding
        seen = self.warnings.seen or self.progress.warning or self.files.difference
        return seen or self.warnings.printed or self.steps.warning

    def failed(self, failure: Failure) -> None:
        """Record a rank's failure."""
        self._failures.add(failure, self._ranks)

    def round_ended(self, cause: str, *, failed: bool, noticed: float | None = None) -> None:
        """Report that the round has ended and the next one is forming.

        Args:
            cause: a message for the user.
            failed: whether a rank failed or a node was lost; else the number of nodes changes.
            noticed: when this node detected it, in ``time.monotonic()``; None for now.
        """
        self._round_over, self.standstill = True, None
        self._failed = self._failed or failed
        if failed:
            self.history.fault(cause, at=noticed)
        self.recovery.begin(cause, noticed=noticed)
        if self._report:
            first = self._report.ended_by or (cause if failed else "")  # what follows from it is told no more
            self._change(forming=True, ended_by=first)
        elif failed and self._stands_in and self._backup:
            self._backup.begin(cause)

    def ended(self, ending: Ending) -> None:
        """Report how the node ends. A round that was given up as it formed is no restart."""
        for text in self.files.end():
            self._log(f"warning: {text}")
        self.history.end(ending.outcome, ending.reason)
        if ending.failure is None or ending.failure != self._left:
            return
        self._left = None
        self._restarts -= 1
        self._change(restarts=self._restarts)

    def observe(
        self,
        ranks: Ranks,
        timings: Mapping[str, Mapping[str, float]] | None = None,
        *,
        training_alone: int = 0,
        resumes: Sequence[Resume] = (),
        all_saved: bool = False,
        orders: Sequence[SampleOrder] = (),
    ) -> None:
        """Take what this node's ranks show, and the step times of all.

        Args:
            ranks: this node's.
            timings: as ``Rendezvous.step_timings`` gives them.
            training_alone: as ``Rendezvous.training_alone``.
            resumes: as ``Rendezvous.resumes``.
            all_saved: as ``Rendezvous.all_saved``.
            orders: as ``Rendezvous.orders``.
        """
        self._watch_processes()
        self.recovery.update(ranks.reached)
        known = (lambda: self.steps.progress) if self._leads else None
        self.history.observe(ranks, known, before=self.steps.taken.before)
        for text in self.steps.observe(ranks, leads=self._leads):
            self._log(text)
        if self.steps.resumed_now:
            self.files.resumed(ranks.loaded_file)
        if self._leads and not (self.steps.unknown or self.recovery.goes_on):
            # The last recovery may be one that another node has told.
            self.history.recovered(self.recovery.complete, lost=self.steps.lost, why=self.steps.resumed.not_whole)
        for text in self.files.observe(ranks.saved, resumes, all_saved=all_saved):
            self._log(f"warning: {text}")
        self.warnings.observe(ranks, training_alone=training_alone, world=self._world, orders=orders)
        self._times.observe(timings)

    def _watch_processes(self) -> None:
        if self._mirror:
            self._mirror.watch()
        if self._copies:
            self._copies.watch()

    def show_success(self, *, success: bool) -> None:
        """Show from now on whether all ranks have succeeded, and what they have trained is kept: the nodes end."""
        self._ended = success
        self._change()

    def take_over(self) -> None:
        """Training has ended, and the node with group rank 0 is lost: report from here what the others still do."""
        try:
            former = self._sink.last() if self._sink else None
        except OSError as error:
            self._log(f"warning: the status does not show what this node does: {error}")
            return
        if self._writer and former and former.run == self._node.run_id:
            self._former = self._report = former
            self._writer.begin()

    def stop(self) -> None:
        """Write the last report, and stop; see ``ReportWriter.stop``."""
        if self._backup:
            self._backup.end()
        if self._writer:
            self._writer.stop()

    def _change(self, **fields: Any) -> None:
        """Report this at once, if this node has something to report."""
        if self._report and self._writer:
            self._report = replace(self._report, **fields)
            self._writer.wake()

    def _now(self) -> Report | None:
        """The report as it is now; called in the background."""
        if (report := self._report) is None:
            return None
        known = self._after_the_end(self._former) if self._former else self._during(report)
        return replace(report, updated=moment(), **known)

    def _after_the_end(self, former: Report) -> dict[str, Any]:
        """What changes once training has ended; all else is as the former leader has told it last."""
        mirror, copies = self.stored
        mirror = mirror or replace(former.mirror or MirrorReport(), node=self._node.node_index)
        return {"ended": self._ended, "mirror": mirror, "copies": copies, "warning": self.warning}

    def _during(self, report: Report) -> dict[str, Any]:
        """Progress, step times and failures, per node and not per rank: a ConfigMap holds at most 1 MiB."""
        mirror, copies = self.stored
        still = self.standstill
        return {
            "progress": self.progress,
            "busy": self._times.slowest(report.nodes),
            "ended": self._ended,
            "slow": self._times.slow,
            "spares": tuple(self.spares),
            "standstill": Standstill(since=round(still[0], 1), what=still[1]) if still else None,
            "last_step": round(self.history.last_step, 1),
            "trend": self.history.trend,
            **self.steps.taken.reported,
            "last_recovery": self.steps.explained(self.recovery.complete),
            "failures": tuple(self._failures.known),
            "mirror": mirror,
            "copies": copies,
            "warning": self.warning or self.files.notice,
        }

    def _log(self, text: str) -> None:
        log(self._node.node_index, text)


def assignment(node: NodeEnv, group_rank: int, ranks: tuple[int, int]) -> NodeAssignment:
    """A node's part in a round.

    Args:
        node: the node's environment.
        group_rank: in this round.
        ranks: first and last.
    """
    return NodeAssignment(
        pod=node.pod,
        host=node.host,
        pid=os.getpid(),
        group_rank=group_rank,
        ranks=ranks,
        joined=time.time(),
        agent_runs=node.agent_runs,
        agent_restarts=node.agent_restarts,
        restart_cause=node.restart_cause[:BRIEF],
    )
