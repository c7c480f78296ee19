"""The life of a node: decide from its surroundings, find the others, and run elastic agents until an end."""

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

from kittrain.env import NodeEnv
from kittrain.node import surroundings
from kittrain.node.drain import Drain, DrainRequested
from kittrain.node.elastic import NodeAgent
from kittrain.node.publish import Reporter, sink_of
from kittrain.node.ranklogs import RankLogs
from kittrain.node.ranks import Starter
from kittrain.node.surroundings import Facts, SurroundingsError
from kittrain.node.zygote import Zygote
from kittrain.outcome import termination
from kittrain.outcome.failures import Budget
from kittrain.outcome.marker import seen_finished
from kittrain.outcome.termination import Ending
from kittrain.rendezvous.backend import LOST, Backend, JobEnded
from kittrain.rendezvous.c10d import C10dBackend
from kittrain.rendezvous.hub_backend import HubBackend
from kittrain.rendezvous.settings import RendezvousSettings
from kittrain.system.console import say

PAUSE: Final = 0.1  # seconds between two attempts to join
FAREWELL: Final = 10.0  # seconds to tell the others that the job has failed
PLACE_PATIENCE: Final = 30.0  # seconds that a node beyond the minimum keeps its place while node 0 has none


class Supervisor:
    """Runs one node to its end.

    Args:
        node: the node.
        command: ``script args`` or ``-m module args``.
        settings: of the rendezvous.
        secret: of the run; None where it has none.
        hub: where the nodes meet, if it is this node's.
        zygote: what ranks are forked from.
        drain: whether the node was told to leave.
        scratch: a folder of this process's own.
    """

    def __init__(
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
    ) -> None:
        self._node = node
        self._settings = settings
        self._secret = secret
        self._hub = hub
        self._starter = Starter(command, zygote=zygote, say=self._say)
        self._drain = drain
        self._joined = False
        self._settled = False
        self._why = ""  # it waits for node 0, as far as that was told
        self._budget = Budget(max_restarts=node.max_restarts, snapshot_dir=node.snapshot_dir)
        self._logs = RankLogs(scratch)
        progress = scratch / "progress.json"
        os.environ["KIT_PROGRESS_FILE"] = str(progress)  # the ranks inherit it
        self._reporter = Reporter(node, sink=sink_of(node.report, self._say), progress_file=progress)

    def run(self) -> Ending:
        """Run to the end.

        Raises:
            DrainRequested: the node was told to leave while it waited for others.
        """
        with self._drain.interruptible():
            backend = self._backend()
        try:
            ending = self._unfit() or self._until_end(backend)
            if ending.outcome == "fatal":
                self._tell_others(backend, replace(ending, node=self._node.node_index))
        except JobEnded as error:
            return error.ending
        else:
            return ending
        finally:
            self._reporter.stop()
            del backend  # whatever it hosts, it hosts until here

    def _backend(self) -> Backend:
        if self._node.rendezvous == "c10d":
            return C10dBackend(self._node, self._settings)
        return HubBackend(self._node, self._settings, started_at=time.time(), secret=self._secret)

    def _unfit(self) -> Ending | None:
        try:
            surroundings.check_gpus(self._node, visible=torch.cuda.device_count())
        except SurroundingsError as error:
            return Ending(outcome="fatal", reason=str(error))
        return None

    def _tell_others(self, backend: Backend, ending: Ending) -> None:
        """Let the other nodes end for the same reason, now; node 0, where they meet, stays until they know it."""
        with suppress(*LOST):  # node 0 is not there
            backend.connect(deadline=time.monotonic() + FAREWELL)
            rendezvous = backend.handler("")
            rendezvous.fail(ending, timeout=FAREWELL if self._node.hosts_rendezvous else 0.0)
            rendezvous.leave()

    def _until_end(self, backend: Backend) -> Ending:
        patience = self._settings.join_timeout
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._attempt(backend, deadline)
            except LOST as error:
                if self._drain.requested:
                    raise DrainRequested from error
                if seen_finished(self._node.snapshot_dir, self._node.run_id):
                    return termination.FINISHED  # and node 0 has left
                if self._hub and self._hub.poll() is not None:
                    return Ending(outcome="retryable", reason="the process that the nodes meet at has ended")
                if self._joined:
                    deadline = time.monotonic() + patience
                if time.monotonic() > deadline:
                    return Ending(outcome="retryable", reason=f"no rendezvous in {patience} s: {error}")
                self._say(f"the rendezvous was lost, joining again ({first_line(error)})")
                self._reporter.dissolve(first_line(error))
            with self._drain.interruptible():
                time.sleep(PAUSE)

    def _attempt(self, backend: Backend, deadline: float) -> Ending:
        """One connection's life, with as many rounds as it holds."""
        self._joined, self._why = False, ""
        if ending := self._connect(backend, deadline):
            return ending
        facts = surroundings.look(self._node)
        self._settle(facts)
        with self._drain.interruptible():
            self._starter.prepare()
        rendezvous = backend.handler(facts.local_addr)
        agent = NodeAgent(
            rendezvous,
            node=self._node,
            starter=self._starter,
            logs=self._logs,
            drain=self._drain,
            budget=self._budget,
            reporter=self._reporter,
            tell=self._tell,
        )
        try:
            result = agent.run()
            return agent.ending if result.is_failed() else Ending(outcome="done", reason="all ranks succeeded")
        finally:
            self._joined = agent.joined
            rendezvous.leave()

    def _connect(self, backend: Backend, deadline: float) -> Ending | None:
        """Reach node 0, or end to make room for it."""
        patience = PLACE_PATIENCE if self._node.node_index >= self._node.min_nodes else self._settings.join_timeout
        until = min(deadline, time.monotonic() + patience)
        try:
            with self._drain.interruptible():
                backend.connect(deadline=until, waiting=self._wait)
        except RendezvousTimeoutError as error:
            # Node 0 has no name yet, so no place. Where there is room for the minimum, and node 0 has none of it, at
            # least one node beyond the minimum has; it leaves, and its next attempt queues up behind node 0.
            if until < deadline and has_no_name(error):
                return Ending(outcome="drained", reason="node 0 has no place yet: it may have this one's")
            raise
        return None

    def _wait(self, why: str) -> None:
        """Between two attempts to reach node 0, which may have left for good."""
        if seen_finished(self._node.snapshot_dir, self._node.run_id):
            raise JobEnded(termination.FINISHED)
        if why != self._why:
            self._say(why)
        self._why = why

    def _settle(self, facts: Facts) -> None:
        """Act on the surroundings, and say once what was decided."""
        node = self._node
        decisions = surroundings.decide(node, facts, os.environ)
        os.environ.update(decisions.env)  # the ranks inherit it
        if self._settled:
            return
        self._settled = True
        self._say(
            f"node {node.node_index} of {node.min_nodes}"
            + (f" to {node.max_nodes}" if node.max_nodes > node.min_nodes else "")
            + f", {node.procs_per_node} rank(s) here, rendezvous at {node.rendezvous_host}:{node.rendezvous_port}, "
            f"interface {os.environ.get('GLOO_SOCKET_IFNAME', 'left to torch')}"
        )
        for warning in decisions.warnings:
            self._say(f"warning: {warning}")

    def _tell(self, ending: Ending) -> None:
        """Keep the latest failure where status finds it, even while the job recovers."""
        termination.write(self._node.termination_log, ending, node_index=self._node.node_index)
        if ending.outcome == "retryable":
            self._say(ending.reason)

    def _say(self, text: str) -> None:
        say(self._node.node_index, text)


def has_no_name(error: BaseException | None) -> bool:
    """Whether the host that was looked for does not resolve."""
    return error is not None and (isinstance(error, socket.gaierror) or has_no_name(error.__cause__))


def first_line(error: BaseException) -> str:
    """An error in one line: torch's network errors carry a C++ stack."""
    return (str(error).splitlines() or [type(error).__name__])[0]
