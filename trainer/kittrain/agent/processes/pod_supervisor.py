"""Runs a pod's agent, and starts it again in place when it is lost: the parent of the agent in a container.

A new pod waits for its controller, whose delays grow with each failure; here they do not exceed a second. The agent's
zygote, which has torch imported, becomes the next agent; if there is none, a new one is forked from this process, which
imports no torch and does nothing else, so that little can kill it. As a container's first process it is its init, too:
it passes stop signals on and reaps orphans. Linux only.

Why: decision 42.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kittrain.agent.processes.agent_process import AWAITED, STOP, AgentProcess, End
from kittrain.agent.processes.supervision import Restart, Supervision
from kittrain.job.env import NodeEnv
from kittrain.outcome import termination
from kittrain.outcome.failures import newest_snapshot
from kittrain.outcome.restarts import RestartBudget
from kittrain.outcome.termination import Ending
from kittrain.system.child_processes import SUPERVISOR, kill_children, set_own_name
from kittrain.system.console import log
from kittrain.system.parent_death import adopt_orphans

STORAGE_TIMEOUT: Final = 1.0  # seconds to look for a new snapshot


def supervise(node: NodeEnv, agent: Callable[[Supervision], int]) -> int:
    """Run a pod's agent until it ends for good, the pod is stopped, or the restart budget is used up.

    Args:
        node: the node's environment.
        agent: runs an agent; returns its exit code.

    Returns:
        The container's exit code: the last agent's.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    adopt_orphans()
    process = AgentProcess(agent)
    set_own_name(SUPERVISOR)
    try:
        return _Supervisor(node, process).run()
    finally:
        kill_children()


class _Supervisor:
    """The restarts of one pod's agent."""

    def __init__(self, node: NodeEnv, process: AgentProcess) -> None:
        self._node = node
        self._process = process
        self._budget = RestartBudget(self._newest_snapshot())

    def run(self) -> int:
        """Returns the container's exit code."""
        restart = Restart()
        while True:
            end = self._process.run(restart)
            if self._process.stopped or not self._node.run.restart_in_place or end.code in self._final_codes():
                return self._exit_code(end)
            cause = self._cause(end)
            delay = self._budget.charge(self._newest_snapshot(), lived=end.lived, gave_up=self._gave_up(end))
            if delay is None:
                return self._give_up(end, cause)
            self._clear_message()
            if signal.sigtimedwait(STOP, delay):
                return self._drained()
            restart = Restart(count=self._budget.total, cause=cause)

    def _final_codes(self) -> set[int]:
        """Codes that end the pod. After a drain, the Kubernetes node is needed for something else."""
        return {self._node.run.exit_codes[outcome] for outcome in ("done", "drained", "fatal")}

    def _gave_up(self, end: End) -> bool:
        return end.code == self._node.run.exit_codes["retryable"]

    def _exit_code(self, end: End) -> int:
        """The agent's exit code as a container's; an agent that was stopped before it could drain is drained."""
        if end.code in {-number for number in STOP}:
            return self._drained()
        return end.code if end.code >= 0 else 128 - end.code

    def _drained(self) -> int:
        self._write(Ending(outcome="drained", reason="received a stop signal"))
        return self._node.run.exit_codes["drained"]

    def _give_up(self, end: End, cause: str) -> int:
        """End the pod: its controller replaces and counts it. An agent's own message is kept."""
        count = self._budget.count
        message = f"{cause}; it was started again in place {count} times without a new snapshot" if count else cause
        log(self._node.node_index, f"retryable: {message}")
        if not self._gave_up(end):
            self._write(Ending(outcome="retryable", reason=message))
        return self._exit_code(end)

    def _cause(self, end: End) -> str:
        """Why the agent ended: its own reason if it gave one."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            if self._node.termination_log and self._gave_up(end):
                return str(json.loads(self._node.termination_log.read_bytes())["reason"])
        return end.description

    def _clear_message(self) -> None:
        """Remove an earlier agent's message, which must not explain how this pod ends."""
        if self._node.termination_log:
            with suppress(OSError):
                self._node.termination_log.write_bytes(b"")

    def _write(self, ending: Ending) -> None:
        termination.write(self._node.termination_log, ending, node_index=self._node.node_index)

    def _newest_snapshot(self) -> tuple[int, int] | None:
        """Read with a time limit: storage that does not answer must not block this process."""
        found: list[tuple[int, int] | None] = []
        read = threading.Thread(target=lambda: found.append(newest_snapshot(self._node.snapshot_dir)), daemon=True)
        read.start()
        read.join(STORAGE_TIMEOUT)
        return found[0] if found else None
