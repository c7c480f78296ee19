"""Injects faults into the processes of a local job."""

from __future__ import annotations

import os
import signal
import subprocess

from kitctl.state.faults import FAULTS, FaultInjection
from kitctl.targets.conflicts import fault_misses
from kitctl.targets.local import node_tools
from kitctl.targets.local.folder import JobFolder
from kitctl.targets.local.interpreter import with_library


def inject(folder: JobFolder, injection: FaultInjection) -> None:
    """Inject a fault.

    Raises:
        ConflictError: there is no such node or rank at the moment.
    """
    agent = _agent(folder, injection)
    try:
        if FAULTS[injection.fault].inside:
            _within(folder, injection, agent)
        elif injection.fault == "preempt":
            os.kill(agent, signal.SIGTERM)
        else:
            os.killpg(agent, signal.SIGKILL)
    except ProcessLookupError as error:
        raise fault_misses(injection, f"node {injection.node} has just ended") from error


def _agent(folder: JobFolder, injection: FaultInjection) -> int:
    node = folder.node(injection.node)
    started = node.started(node.attempts)
    if not (node.alive() and started):
        raise fault_misses(injection, f"node {injection.node} is not running")
    return started.pid


def _within(folder: JobFolder, injection: FaultInjection, agent: int) -> None:
    command = node_tools.command(folder, injection.command("--agent", str(agent)))
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=with_library(os.environ, folder.job.library)
    )
    if done.returncode:
        raise fault_misses(injection, done.stderr.strip())
