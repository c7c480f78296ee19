"""The life of a node: decide from its surroundings, host the store on node 0, and run elastic agents until an end."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Final

import torch
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

from trainer import rendezvous, surroundings, termination
from trainer.console import say
from trainer.drain import Drain, DrainRequested
from trainer.elastic import NodeAgent, worker_spec
from trainer.env import EnvError, NodeEnv
from trainer.failures import Budget
from trainer.publish import Reporter, sink_of
from trainer.ranklogs import RankLogs
from trainer.rendezvous import LOST, Knobs, PortBusyError
from trainer.surroundings import Facts, SurroundingsError
from trainer.termination import Ending

PAUSE: Final = 0.5  # seconds between two attempts to join
PLACE_PATIENCE: Final = 30.0  # seconds that a node beyond the minimum keeps its place while node 0 has none


class Supervisor:
    """Runs one node to its end.

    Args:
        node: the node.
        command: ``script args`` or ``-m module args``.
        drain: whether the node was told to leave.
        scratch: a folder of this process's own.
    """

    def __init__(self, node: NodeEnv, command: list[str], *, drain: Drain, scratch: Path) -> None:
        self._node = node
        self._command = command
        self._drain = drain
        self._joined = False
        self._settled = False
        self._budget = Budget(max_restarts=node.max_restarts, snapshot_dir=node.snapshot_dir)
        folder = node.log_dir / f"node-{node.node_index}" if node.log_dir else None
        self._logs = RankLogs(scratch=scratch, log_dir=folder, warn=self._say)
        progress = scratch / "progress.json"
        os.environ["KIT_PROGRESS_FILE"] = str(progress)  # the ranks inherit it
        self._reporter = Reporter(node, sink=sink_of(node.report, self._say), progress_file=progress)

    def run(self) -> Ending:
        """Run to the end.

        Raises:
            DrainRequested: the node was told to leave while it waited for others.
        """
        try:
            knobs = Knobs.of(self._node.rendezvous_conf)
            surroundings.check_gpus(self._node, visible=torch.cuda.device_count())
            with self._drain.interruptible():
                store = rendezvous.host_store(self._node) if self._node.hosts_store else None
        except (EnvError, SurroundingsError) as error:
            return Ending(outcome="fatal", reason=str(error))
        except PortBusyError as error:
            return Ending(outcome="retryable", reason=str(error))
        try:
            return self._until_end(knobs)
        finally:
            self._reporter.stop()
            del store  # hosted until here

    def _until_end(self, knobs: Knobs) -> Ending:
        deadline = time.monotonic() + knobs.join_timeout
        while True:
            try:
                return self._attempt(knobs, deadline)
            except LOST as error:
                if self._drain.requested:
                    raise DrainRequested from error
                if self._joined:
                    deadline = time.monotonic() + knobs.join_timeout
                if time.monotonic() > deadline:
                    return Ending(outcome="retryable", reason=f"no rendezvous in {knobs.join_timeout} s: {error}")
                self._say(f"the rendezvous was lost, joining again ({first_line(error)})")
            with self._drain.interruptible():
                time.sleep(PAUSE)

    def _attempt(self, knobs: Knobs, deadline: float) -> Ending:
        """One rendezvous handler's life, with as many rounds as it holds."""
        self._joined = False
        try:
            with self._drain.interruptible():
                patience = PLACE_PATIENCE if self._node.node_index >= self._node.min_nodes else knobs.join_timeout
                until = min(deadline, time.monotonic() + patience)
                store = rendezvous.connect(self._node, knobs, deadline=until, waiting=self._say)
        except RendezvousTimeoutError as error:
            # Node 0 has no name yet, so no place. Where there is room for the minimum, and node 0 has none of it, at
            # least one node beyond the minimum has; it leaves, and its next attempt queues up behind node 0.
            if until < deadline and has_no_name(error):
                return Ending(outcome="drained", reason="node 0 has no place yet: it may have this one's")
            raise
        facts = surroundings.look(self._node)
        self._settle(facts)
        handler = rendezvous.join(self._node, knobs, store, local_addr=facts.local_addr)
        agent = NodeAgent(
            worker_spec(self._node, self._command, handler),
            node=self._node,
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
            rendezvous.leave(handler)

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
