"""Runs a node: connects to the rendezvous and runs elastic agents, one after the other, until the job ends."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Final

import torch
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

from kitjob.durations import seconds
from kitjob.report import CopiesReport, MirrorReport
from kittrain.agent.processes.copies import CopiesProcess
from kittrain.agent.processes.kept_ranks import KeptRanks
from kittrain.agent.processes.mirror import FINISH, MirrorProcess
from kittrain.agent.processes.rank_logs import RankLogs
from kittrain.agent.processes.ranks import Starter
from kittrain.agent.processes.zygote import Zygote
from kittrain.agent.rendezvous.hub_backend import HubBackend
from kittrain.agent.rendezvous.interface import LOST, JobEnded, Rendezvous
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.report.failure_message import GivenUpError
from kittrain.agent.report.history import History
from kittrain.agent.report.publish import Reporter
from kittrain.agent.report.report_sinks import sink_of
from kittrain.agent.rounds.drain import Drain, DrainRequested
from kittrain.agent.rounds.elastic import KILL_RESERVE, NodeAgent
from kittrain.agent.setup import host_info
from kittrain.agent.setup.host_info import HostError, HostInfo
from kittrain.agent.setup.preparation import Unreached
from kittrain.job.env import NodeEnv
from kittrain.outcome import termination
from kittrain.outcome.failures import Budget
from kittrain.outcome.marker import seen_finished
from kittrain.outcome.termination import Ending
from kittrain.system.console import log

HUB_ENDED: Final = Ending(outcome="retryable", reason="the rendezvous hub process has exited")
REJOIN_INTERVAL: Final = 0.1  # seconds between two attempts to join
NOTIFY_TIMEOUT: Final = 10.0  # seconds to notify the others that the job has failed
HAND_OVER_TIMEOUT: Final = 10.0  # seconds that a drained node waits for the others, which meet at it
YIELD_TIMEOUT: Final = 30.0  # seconds after which a node beyond the minimum makes room for an unscheduled node 0


class Supervisor:
    """Runs one node until it ends.

    Args:
        node: the node's environment.
        command: ``script args`` or ``-m module args``.
        settings: the rendezvous settings.
        secret: the run's secret, if it has one.
        hub: the hub's process, if this node hosts it.
        zygote: forks the ranks; None starts them cold.
        drain: the drain request.
        scratch: the agent's temporary folder.
        history: this node's part of the run's history.
    """

    def __init__(  # noqa: PLR0913  what a node consists of
        self,
        node: NodeEnv,
        command: list[str],
        *,
        settings: RendezvousSettings,
        secret: bytes | None,
        hub: Popen[bytes] | None,
        zygote: Zygote | None,
        drain: Drain,
        scratch: Path,
        history: History | None = None,
    ) -> None:
        self._node = node
        self._settings = settings
        self._secret = secret
        self._hub = hub
        self._starter = Starter(command, zygote=zygote, packages=node.packages, log=self._log)
        self._drain = drain
        self._joined = False
        self._recorded = False  # whether the termination message has a failure that the job has not recovered from
        self._announced = False
        self._waiting_for = ""  # the last logged reason for waiting for node 0
        self._unreached = Unreached(node, self._log)
        self._lost_for = ""  # the last logged reason for having no rendezvous
        self._notified = False  # whether the other nodes know how the job ends
        self._budget = Budget(max_restarts=node.job.policy.max_restarts, snapshot_dir=node.snapshot_dir)
        self._logs = RankLogs(scratch)
        self._kept = KeptRanks() if node.job.policy.survivors == "live" else None
        progress = scratch / "progress.json"
        os.environ["KIT_PROGRESS_FILE"] = str(progress)  # inherited by the ranks
        sink = sink_of(node.run.report, self._log, os.environ)
        self._mirror = MirrorProcess(node, scratch, self._log) if node.job.snapshots.mirror else None
        per_node = node.job.snapshots.storage != "claim" and node.snapshot_dir is not None
        self._copies = CopiesProcess(node, secret, self._log) if per_node else None
        self._reporter = Reporter(
            node, sink=sink, progress_file=progress, history=history, mirror=self._mirror, copies=self._copies
        )

    def stored(self) -> tuple[MirrorReport | None, CopiesReport | None]:
        """How far the copies of the snapshots are; may be called from another thread."""
        return self._reporter.stored

    def run(self) -> Ending:
        """Run until the node ends.

        Raises:
            DrainRequested: a drain was requested while the node waited for others.
        """
        with self._drain.interruptible():
            backend = HubBackend(self._node, self._settings, started_at=time.time(), secret=self._secret)
        try:
            ending = self._check_host() or self._run_rounds(backend)
            self._reporter.show_success(success=ending.outcome == "done")
            self._finish_mirror(gather=ending.outcome != "retryable", job=ending.outcome == "done")
            ending = self._with_what_is_lost(ending)
            self._reporter.show_success(success=ending.outcome == "done" and not self._is_to_go_on())
            self._reporter.ended(ending)
            if ending.outcome == "fatal" and not self._notified:
                self._notify_others(backend, replace(ending, node=self._node.node_index))
        except JobEnded as error:
            self._finish_mirror(gather=True, job=error.ending.outcome == "done")
            self._reporter.ended(error.ending)
            return error.ending
        else:
            return ending
        finally:
            if self._kept:
                self._kept.stop()  # they wait for a round that does not come
            self._finish_mirror(gather=self._drain.requested)
            self._reporter.stop()
            if self._copies:
                self._copies.stop()

    def _finish_mirror(self, *, gather: bool, job: bool = False) -> None:
        """Have what is published copied, within the grace period if this node is drained.

        Args:
            gather: wait until rank 0's node has this one's part of the newest snapshot: what is here may go with it. If
                that is nowhere else, wait until it is uploaded, too, and do it here if the nodes before this are lost.
            job: training has ended on all nodes.
        """
        if not self._mirror:
            return
        if self._copies and gather and self._settle(self._copies, job=job):
            self._mirror.lead(leads=True)
        uploads = self._mirror.report is not None
        self._mirror.finish(lambda: self._left() if self._drain.requested else None, self._reporter.history.held)
        if self._copies and uploads:
            self._copies.release()

    def _settle(self, copies: CopiesProcess, *, job: bool) -> bool:
        """Wait until no other node needs what is here; returns whether this node is to upload it."""
        snapshots = self._node.job.snapshots
        longest = FINISH + (seconds(snapshots.mirror_timeout) if snapshots.in_memory else 0.0)
        half = lambda: self._left() / 2 if self._drain.requested else None  # noqa: E731  two words for one use
        return copies.settle(longest, half, job=job, on_lead=self._reporter.take_over)

    def _with_what_is_lost(self, ending: Ending) -> Ending:
        """A job that has trained, and has nothing of it, has failed."""
        lost = self._mirror.lost if self._mirror else ""
        if not lost:
            return ending
        reason = f"{ending.reason}, and what they have trained is lost: {lost}"
        return replace(ending, outcome="fatal" if ending.outcome == "done" else ending.outcome, reason=reason)

    def _is_to_go_on(self) -> bool:
        """Whether nodes that start anew have something to do: their folders are empty, and the mirror lacks the end."""
        return bool(self._copies and self._mirror and self._mirror.missing)

    def _left(self) -> float:
        """Seconds until a drained node has to end."""
        return max(self._node.grace_period - KILL_RESERVE - self._drain.age(), 1.0)

    def _check_host(self) -> Ending | None:
        node, accelerated = self._node, may_have_accelerator()
        try:
            host_info.check_gpus(node, visible=torch.cuda.device_count())
            host_info.check_backend(node, torch=torch.__version__, built_with=backends(), accelerated=accelerated)
        except HostError as error:
            return Ending(outcome="fatal", reason=str(error))
        return None

    def _notify_others(self, backend: HubBackend, ending: Ending) -> None:
        """Make the other nodes end for the same reason. The node whose hub serves waits until they know.

        A connection may be lost at once, as the hub has yet to notice that this node's last one is closed.
        """
        deadline = time.monotonic() + NOTIFY_TIMEOUT
        while time.monotonic() < deadline:
            with suppress(*LOST):
                backend.connect(deadline=deadline)
                rendezvous = backend.handler("")
                rendezvous.fail(ending, timeout=NOTIFY_TIMEOUT if backend.hosts else 0.0)
                rendezvous.leave()
                return
            time.sleep(REJOIN_INTERVAL)

    def _run_rounds(self, backend: HubBackend) -> Ending:
        patience = self._settings.join_timeout
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._attempt(backend, deadline)
            except LOST as error:
                if self._drain.requested:
                    raise DrainRequested from error
                if seen_finished(self._node.snapshot_dir, self._node.run_id):  # so node 0 has exited
                    return termination.cut_short(first_line(error)) if self._joined else termination.FINISHED
                if self._hub and self._hub.poll() is not None:
                    return HUB_ENDED
                if self._joined:
                    deadline = time.monotonic() + patience
                if time.monotonic() > deadline:
                    return Ending(outcome="retryable", reason=f"no rendezvous within {patience} s: {error}")
                if self._joined or first_line(error) != self._lost_for:
                    self._log(f"rendezvous lost, rejoining ({first_line(error)})")
                self._lost_for = first_line(error)
                if self._joined:  # else there was no round that could end
                    self._reporter.round_ended(first_line(error), failed=True)
            with self._drain.interruptible():
                time.sleep(0.0 if self._joined else REJOIN_INTERVAL)  # where a round was, others wait for this node

    def _attempt(self, backend: HubBackend, deadline: float) -> Ending:
        """Connect once and run rounds until the connection is lost or the job ends."""
        self._joined, self._waiting_for = False, ""
        if ending := self._connect(backend, deadline):
            return ending
        host = host_info.inspect(self._node, accelerated=may_have_accelerator())
        self._apply_launch_settings(host)
        with self._drain.interruptible():
            self._starter.prepare()
        if self._copies:
            self._copies.listen(host.local_addr)
        rendezvous = backend.handler(host.local_addr)
        agent = NodeAgent(
            rendezvous,
            node=self._node,
            starter=self._starter,
            logs=self._logs,
            drain=self._drain,
            budget=self._budget,
            reporter=self._reporter,
            on_failure=self._record_failure,
            on_training=self._forget_failure,
            kept=self._kept,
        )
        try:
            result = agent.run()
            but = f", but {warning}" if (warning := self._reporter.warning) else ""
        except GivenUpError as error:
            with suppress(*LOST):  # the others are in the round that forms: they are told before it is over for them
                ending = replace(error.ending, node=self._node.node_index)
                rendezvous.fail(ending, timeout=NOTIFY_TIMEOUT if backend.hosts else 0.0)
                self._notified = True
            return error.ending
        else:
            if result.is_failed():
                return agent.ending
            return Ending(outcome="done", reason=f"all ranks succeeded{but}", note=agent.note)
        finally:
            self._joined = agent.joined
            if self._drain.requested and backend.hosts:
                self._hand_over(rendezvous)
            rendezvous.leave()

    def _hand_over(self, rendezvous: Rendezvous) -> None:
        """Have the others meet at another node's hub before this one's ends: their next round would be lost with it."""
        with suppress(*LOST):
            rendezvous.hand_over(timeout=min(self._left(), HAND_OVER_TIMEOUT))

    def _connect(self, backend: HubBackend, deadline: float) -> Ending | None:
        """Connect to node 0, or end to make room for it."""
        patience = YIELD_TIMEOUT if self._node.node_index >= self._node.job.min_nodes else self._settings.join_timeout
        until = min(deadline, time.monotonic() + patience)
        try:
            with self._drain.interruptible():
                backend.connect(deadline=until, waiting=self._wait)
                self._unreached.reached()
        except RendezvousTimeoutError as error:
            # Node 0 has no DNS name, so it is not scheduled. If there is room for the minimum, a node beyond it may
            # occupy node 0's place; it exits, and its next pod queues up behind node 0.
            if until < deadline and is_unresolved(error):
                return Ending(outcome="drained", reason="node 0 is not scheduled: making room for it")
            raise
        return None

    def _wait(self, reason: str) -> None:
        """Called between attempts to connect to node 0, which may have finished and exited, or lost its hub."""
        if seen_finished(self._node.snapshot_dir, self._node.run_id):
            raise JobEnded(termination.FINISHED)
        if self._hub and self._hub.poll() is not None:  # nobody will answer
            raise JobEnded(HUB_ENDED)
        if reason != self._waiting_for:
            self._log(reason)
        self._waiting_for = reason
        if not self._announced:  # else it has met the others, and lost them
            self._unreached.waits(reason)

    def _apply_launch_settings(self, host: HostInfo) -> None:
        """Set the ranks' environment from the host, and log it once."""
        node = self._node
        launch = host_info.launch_settings(node, host, os.environ)
        os.environ.update(launch.env)  # inherited by the ranks
        if self._announced:
            return
        self._announced = True
        ranks = f"{node.procs_per_node} {'rank' if node.procs_per_node == 1 else 'ranks'}"
        self._log(
            f"node {node.node_index} of {node.job.min_nodes}"
            + (f" to {node.job.max_nodes}" if node.job.max_nodes > node.job.min_nodes else "")
            + f", {ranks} here, rendezvous at {node.run.rendezvous_host}:"
            f"{node.run.rendezvous_port}, interface {os.environ.get('GLOO_SOCKET_IFNAME', 'chosen by torch')}"
        )
        for warning in launch.warnings:
            self._log(f"warning: {warning}")

    def _record_failure(self, ending: Ending) -> None:
        """Write the latest failure to the termination message, even while the job recovers."""
        termination.write(self._node.termination_log, ending, node_index=self._node.node_index)
        self._recorded = True
        if ending.outcome == "retryable":
            self._log(ending.reason)

    def _forget_failure(self) -> None:
        """The job has recovered: whatever ends this node now has another cause."""
        if self._recorded:
            self._recorded = False
            termination.clear(self._node.termination_log)

    def _log(self, text: str) -> None:
        log(self._node.node_index, text)


def backends() -> set[str]:
    """The backends of collectives that this torch is built with."""
    names = ("is_gloo_available", "is_nccl_available", "is_mpi_available", "is_ucc_available", "is_xccl_available")
    return {name.split("_")[1] for name in names if getattr(torch.distributed, name, bool)()}


def may_have_accelerator() -> bool:
    """Whether torch may find something else than CPUs to compute on; initializes nothing, counts only GPUs of CUDA."""
    try:
        built_for = torch.accelerator.current_accelerator()
    except RuntimeError:  # torch 2.6's way to say None
        return False
    return built_for is not None and (built_for.type != "cuda" or torch.cuda.device_count() > 0)


def is_unresolved(error: BaseException | None) -> bool:
    """Whether an error was caused by a name that does not resolve."""
    return error is not None and (isinstance(error, socket.gaierror) or is_unresolved(error.__cause__))


def first_line(error: BaseException) -> str:
    """The first line of an error: torch's network errors contain a C++ stack."""
    return (str(error).splitlines() or [type(error).__name__])[0]
