"""Publishes the job's report, from the agent with group rank 0: which node runs which ranks, and the progress."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.record import replace
from kitjob.report import CopiesReport, MirrorReport, NodeAssignment, PastFailure, RankProgress, Report, Standstill
from kittrain.agent.hooks.script_progress import alone
from kittrain.agent.rendezvous.resumes import Resume
from kittrain.agent.report.departures import Departures, departure
from kittrain.agent.report.deputy import GROUP_RANKS, Deputy, moment
from kittrain.agent.report.failure_log import FailureLog
from kittrain.agent.report.history import History
from kittrain.agent.report.observed import Ranks, Store
from kittrain.agent.report.private_files import PrivateFiles
from kittrain.agent.report.recovery import RecoveryClock
from kittrain.agent.report.report_sinks import Sink
from kittrain.agent.report.resumed_steps import ResumedSteps
from kittrain.agent.report.steps_taken import StepsTaken, last_step
from kittrain.job.env import NodeEnv
from kittrain.outcome.failures import BRIEF, Failure
from kittrain.outcome.termination import Ending
from kittrain.system.console import log
from kittrain.system.texts import fit

NOTHING: Final = RankProgress()
CLOCK_READS: Final = 2
NOT_FINITE: Final = "the loss is not finite, "
FINAL_REPORT_TIMEOUT: Final = 3.0  # seconds to write the last report: a draining node has little time


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

    def begin(self, number: int, places: list[Mapping[str, Any]]) -> None:
        """A round begins, with these nodes."""

    def watch(self) -> None:
        """Called often."""

    @property
    def report(self) -> CopiesReport | None:
        """How far it is."""


class Reporter:
    """Collects the report of each round; only the agent with group rank 0 writes it.

    A background thread writes it, so a sink that fails or hangs does not slow down training.
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
        self.history = history or History(node, self._log)
        self._sink = sink
        self._deputy = Deputy(node.run_id, sink, self._tail_after) if sink else None
        self._stands_in = False  # whether this node tells that a round has ended, if the leader does not
        self._progress_file = progress_file
        self._ranks = (0, -1)
        self.departures = Departures()  # of the last round
        self.departed: Failure | None = None  # if one of this node's ranks ended it by leaving
        self._left: Failure | None = None  # the same, of any node's ranks
        self.script_steps = 0  # as ``Ranks.script_steps``, of the last round
        self._failures = FailureLog(node.node_index)
        self.recovery = RecoveryClock()
        self._round = 0
        self._unknown = False  # whether no agent knows how far the last round's ranks were: its leader is gone
        self._leads = False  # whether this node has group rank 0
        self._timings: Mapping[str, Mapping[str, float]] = {}
        self._slow: set[str] = set()  # ranks already logged as slow
        self.standstill: tuple[float, str] | None = None  # as ``Rendezvous.standstill``
        self.spares: Sequence[int] = ()  # as ``Rendezvous.spares``
        self._alone = ""  # a warning that ranks train models of their own
        self._told_alone = False
        self._not_finite = ""  # likewise, that they train NaN
        self._printed_loss = ""  # what they print of that
        self._background = ""  # and that they have not ended, though their processes have
        self._world = 1
        self.loaded = 0  # as ``Ranks.loaded``, of this round, and of all nodes' former ones
        self._script_progress = RankProgress()  # of a script that writes no progress file
        self._taken = StepsTaken()  # by such a script
        self._resumed = ResumedSteps()  # in the library's loop
        self.files = PrivateFiles(node)
        self._restarts = 0  # of the ranks, after a failure
        self._failed = False  # the last round
        self._report: Report | None = None  # if this node has group rank 0
        self._former: Report | None = None  # of the node that had it, if this one has taken its place at the end
        self._round_over = self._ended = False
        self._tail_of_others = False  # whether others may have written the history's tail since this node did
        self._changed = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()  # errors already logged

    def begin(self, store: Store, *, group_rank: int, group_size: int, ranks: tuple[int, int], world: int) -> int:
        """Exchange assignments with the other nodes; returns the round's number.

        The number grows even if the store is new. It restarts only if no node of the round before is left.

        Raises:
            torch.distributed.DistError: the store or another node is lost.
        """
        self._ranks, self._world = ranks, world
        if self._deputy:
            self._deputy.end()
        index = self._node.node_index
        known = {
            "round": self._round,
            "failures": typed.encode(self._failures.known),
            "loaded": self.loaded,
            "departures": self.departures.facts,
            "restarts": self._restarts + self._failed,
            "taken": self._taken.marks,
            "reached": self._resumed.reached(self._own_progress()) if self._leads else 0,
            "copies": self._copies.address if self._copies else "",
        }
        store.set(
            f"kit/node/{group_rank}",
            json.dumps({"node": typed.encode(assignment(self._node, group_rank, ranks)), "index": index, **known}),
        )
        if group_rank == 0:
            nodes = [json.loads(text) for text in store.multi_get([f"kit/node/{i}" for i in range(group_size)])]
            most = {key: max(node[key] for node in nodes) for key in ("round", "loaded", "restarts", "reached")}
            taken = max((node["taken"] for node in nodes), key=last_step)
            departed = departure([node["departures"] for node in nodes])
            found = ({"node": one["index"], "host": one["node"]["host"], "address": one["copies"]} for one in nodes)
            places = list(found) if self._copies else []
            store.set("kit/round", json.dumps({**most, "taken": taken, "departed": departed, "places": places}))
            self._failures.merge(typed.decode(PastFailure, one) for node in nodes for one in node["failures"])
        agreed = json.loads(store.get("kit/round"))
        self._round, self.loaded, self._restarts = agreed["round"] + 1, agreed["loaded"], agreed["restarts"]
        self._failed, self._leads, self._stands_in = False, group_rank == 0, group_rank in GROUP_RANKS
        if self._mirror:
            self._mirror.lead(leads=self._leads)
        if self._copies:
            self._copies.begin(self._round, agreed["places"])
        self._taken.restart(agreed["taken"])
        self._resumed.restart(agreed["reached"], self._own_progress())
        self._unknown = not agreed["reached"]
        self.files.begin()
        self._not_finite = self._background = ""
        self._explain(Failure(**agreed["departed"]) if agreed["departed"] else None)
        self.departures = Departures(round=self._round, size=group_size)
        self._round_over, self._timings, self._slow, self.standstill, self.spares = False, {}, set(), None, ()
        self._measure_clock(store)
        self.history.joined(self._round, world=world, nodes=group_size)
        if group_rank == 0 and self._sink:
            self._lead(
                self._sink, {str(node["index"]): typed.decode(NodeAssignment, node["node"]) for node in nodes}, world
            )
        else:
            self._report = None  # another node writes it now
        return self._round

    def _measure_clock(self, store: Store) -> None:
        """Compare this node's clock with node 0's, by a key that is set, so that the answer comes at once."""
        for _ in range(CLOCK_READS):
            store.get("kit/round")
        if (clock := getattr(store, "clock", None)) is not None:
            self.history.clock(**clock)

    def _explain(self, departed: Failure | None) -> None:
        """Take which rank ended the last round by leaving; ``departures`` are still those of that round."""
        self._left = departed
        self.departed = departed if departed and self.departures.has(departed.rank) else None
        if departed:
            self.recovery.explain(f"rank {departed.rank} {departed.error}")

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
        return self._progress()

    @property
    def warning(self) -> str:
        """What is probably not as it should be, although the ranks run or have succeeded; it was logged."""
        if self._mirror and self._mirror.holding:
            return self._mirror.holding
        printed = self._printed_loss and f"{NOT_FINITE}{self._printed_loss}"
        found = self._not_finite or self._background or self._alone or self._progress().warning or self.files.difference
        return found or printed or self._taken.anew or self._resumed.warning

    def gone_on(self, ranks: Sequence[int]) -> None:
        """Ranks have ended with 0 before they joined a group or took a step, and left processes of their script."""
        who, have = f"ranks {', '.join(map(str, ranks))}", "have"
        if len(ranks) == 1:
            who, have = f"rank {ranks[0]}", "has"
        self._background = f"{who} {have} gone on in the background, after exit code 0"
        self._log(f"warning: {self._background}: what they do there is ended with this node")

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
            self._report = replace(self._report, forming=True, ended_by=first)
            self._changed.set()
        elif failed and self._stands_in and self._deputy:
            self._deputy.begin(cause)

    def ended(self, ending: Ending) -> None:
        """Report how the node ends. A round that was given up as it formed is no restart."""
        self.history.end(ending.outcome, ending.reason)
        if ending.failure is None or ending.failure != self._left:
            return
        self._left = None
        self._restarts -= 1
        if self._report:
            self._report = replace(self._report, restarts=self._restarts)
            self._changed.set()

    def observe(
        self,
        ranks: Ranks,
        timings: Mapping[str, Mapping[str, float]] | None = None,
        *,
        training_alone: int = 0,
        resumes: Sequence[Resume] = (),
    ) -> None:
        """Take what this node's ranks show, and the step times of all; logs each slow rank once.

        Args:
            ranks: this node's.
            timings: as ``Rendezvous.step_timings`` gives them.
            training_alone: as ``Rendezvous.training_alone``.
            resumes: as ``Rendezvous.resumes``.
        """
        self._watch_processes()
        self.recovery.update(ranks.reached)
        self.history.observe(ranks, self._progress if self._leads else None)
        self.loaded = max(self.loaded, ranks.loaded)
        self.script_steps = ranks.script_steps
        if self._taken.add(self.script_steps, time.time_ns(), ranks.loaded):
            self.files.resumed(ranks.loaded_file)
            if self._taken.lost and self._leads:
                self._log(self._taken.anew or str(self._taken))
        if self._leads and self._resumed.add(self._own_progress):
            self._log(self._resumed.text)
        unknown = self._resumed.unknown or self._taken.unknown or self.recovery.goes_on
        if self._leads and not unknown:  # the last recovery may be one that another node has told
            why, lost = self._resumed.not_whole, self._resumed.lost or self._taken.lost
            self.history.recovered(self.recovery.complete, lost=lost, why=why)
        for text in self.files.observe(ranks.saved, resumes):
            self._log(f"warning: {text}")
        if facts := {**ranks.script_progress, **self._taken.facts}:
            self._script_progress = RankProgress(**facts)
        self._judge(ranks, training_alone)
        self._timings = timings or self._timings
        for rank, ratio in self._timings.get("slow", {}).items():
            if rank not in self._slow:
                self._slow.add(rank)
                self._log(f"rank {rank} is slow: its steps take {ratio:.1f} times as long as the others'")

    def _watch_processes(self) -> None:
        if self._mirror:
            self._mirror.watch()
        if self._copies:
            self._copies.watch()

    def _judge(self, ranks: Ranks, training_alone: int) -> None:
        """What is probably wrong with the training of a loop of the script's own; each is logged once."""
        self._alone = alone(training=training_alone, group=ranks.group, separate=ranks.separate, world=self._world)
        if self._alone and not self._told_alone:  # ranks that are slow to exchange something may look so for a while
            self._told_alone = True
            self._log(f"warning: {self._alone}")
        if ranks.not_finite and not self._not_finite:
            self._not_finite = f"the parameters are not finite, as seen at step {ranks.not_finite}"
            self._log(f"warning: {self._not_finite}")
        if ranks.printed_loss and not self._printed_loss:
            self._log(f"warning: {NOT_FINITE}{ranks.printed_loss}")
        self._printed_loss = ranks.printed_loss

    def show_success(self, *, success: bool) -> None:
        """Show from now on whether all ranks have succeeded, and what they have trained is kept: the nodes end."""
        self._ended = success
        self._changed.set()

    def take_over(self) -> None:
        """Training has ended, and the node with group rank 0 is lost: report from here what the others still do."""
        try:
            former = self._sink.last() if self._sink else None
        except OSError as error:
            self._log(f"warning: the status does not show what this node does: {error}")
            return
        if self._sink and former and former.run == self._node.run_id:
            self._former = self._report = former
            self._publish(self._sink)

    def stop(self) -> None:
        """Write the last report, for at most FINAL_REPORT_TIMEOUT seconds, and stop."""
        self._stopping = True
        self._changed.set()
        if self._deputy:
            self._deputy.end()
        if self._thread:
            self._thread.join(FINAL_REPORT_TIMEOUT)

    def _lead(self, sink: Sink, nodes: dict[str, NodeAssignment], world: int) -> None:
        if not self._report:
            self._progress_file.unlink(missing_ok=True)  # left from an earlier round
        self._report = Report(
            run=self._node.run_id,
            round=self._round,
            formed=time.time(),
            world_size=world,
            restarts=self._restarts,
            nodes=nodes,
        )
        self._publish(sink)

    def _publish(self, sink: Sink) -> None:
        self._tail_of_others = not self.history.has_volume
        self._changed.set()
        if not self._thread:
            self._thread = threading.Thread(target=self._run, args=(sink,), name="report", daemon=True)
            self._thread.start()

    def _run(self, sink: Sink) -> None:
        """Write the report at once when the round changes, and at intervals for the progress."""
        if self._unknown:
            self._remember(sink)
        last = False
        while not last:
            self._changed.wait(sink.interval)
            self._changed.clear()
            last, report = self._stopping, self._report
            if report:
                if self._tail_of_others:
                    self._tail_of_others = False
                    with suppress(OSError):  # their lines are missing then
                        self._tail_after(sink.tail())
                known = self._after_the_end(self._former) if self._former else self._during(report)
                self._put(sink, replace(report, updated=moment(), **known))

    def _after_the_end(self, former: Report) -> dict[str, Any]:
        """What changes once training has ended; all else is as the former leader has told it last."""
        mirror, copies = self.stored
        mirror = mirror or replace(former.mirror or MirrorReport(), node=self._node.node_index)
        return {"ended": self._ended, "mirror": mirror, "copies": copies, "warning": self.warning}

    def _remember(self, sink: Sink) -> None:
        """Take the step that a former leader of this run has reported last: that agent is gone."""
        try:
            former = sink.last()
            if former and former.run == self._node.run_id and not former.progress.of_own_loop:
                self._resumed.remember(ResumedSteps.reached(former.progress))
        except OSError:
            return  # only a number is missing, and the first report says what is wrong with the sink

    def _during(self, report: Report) -> dict[str, Any]:
        """Progress, step times and failures, per node and not per rank: a ConfigMap holds at most 1 MiB."""
        busy = {int(rank): seconds for rank, seconds in self._timings.get("busy", {}).items()}
        slowest = {
            index: round(max(busy[rank] for rank in ranks), 4)
            for index, node in report.nodes.items()
            if (ranks := [rank for rank in range(node.ranks[0], node.ranks[1] + 1) if rank in busy])
        }
        mirror, copies = self.stored
        slow, failures, still = self._timings.get("slow", {}), tuple(self._failures.known), self.standstill
        return {
            "progress": self._progress(),
            "busy": slowest,
            "ended": self._ended,
            "slow": dict(slow),
            "spares": tuple(self.spares),
            "standstill": Standstill(since=round(still[0], 1), what=still[1]) if still else None,
            "last_step": round(self.history.last_step, 1),
            "trend": self.history.trend,
            "last_recovery": self._resumed.explained(self.recovery.complete),
            "failures": failures,
            "mirror": mirror,
            "copies": copies,
            "warning": self.warning or self.files.notice,
        }

    def _put(self, sink: Sink, report: Report) -> None:
        try:
            sink.put(report, self._tail_after(""))
        except OSError as error:  # a full disk or an unreachable server: the next report may succeed
            reason = str(error)
            if reason not in self._warned:
                self._warned.add(reason)
                self._log(f"warning: cannot write the status report: {reason}")

    def _tail_after(self, former: str) -> str:
        return "" if self.history.has_volume else self.history.tail(former)

    def _log(self, text: str) -> None:
        log(self._node.node_index, text)

    def _progress(self) -> RankProgress:
        own = self._own_progress()
        return self._script_progress if own == NOTHING else own

    def _own_progress(self) -> RankProgress:
        """What the library's loop has written; nothing if the script does not use it, or it has not yet."""
        try:
            found: RankProgress = typed.decode(RankProgress, fit(typed.parse(self._progress_file.read_bytes())))
        except (OSError, MalformedError):
            return NOTHING
        return found


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
