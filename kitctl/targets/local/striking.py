"""Faults on purpose, done to processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess

from kitctl.errors import ConflictError
from kitctl.faults import FAULTS, FaultInjection
from kitctl.targets.local.folder import JobFolder


def strike(folder: JobFolder, strike: FaultInjection) -> None:
    """Do it.

    Raises:
        ConflictError: there is no such node or rank now.
    """
    agent = _agent(folder, strike)
    try:
        if FAULTS[strike.fault].signal:
            _within(folder, strike, agent)
        elif strike.fault == "preempt":
            os.kill(agent, signal.SIGTERM)
        else:
            os.killpg(agent, signal.SIGKILL)
    except ProcessLookupError as error:
        raise _gone(strike, f"node {strike.node} has just ended") from error


def _agent(folder: JobFolder, strike: FaultInjection) -> int:
    node = folder.node(strike.node)
    started = node.started(node.attempts)
    if not (node.alive() and started):
        raise _gone(strike, f"node {strike.node} does not run now")
    return started.pid


def _within(folder: JobFolder, strike: FaultInjection, agent: int) -> None:
    command = [folder.job.python, *strike.command("--agent", str(agent))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise _gone(strike, done.stderr.strip())


def _gone(strike: FaultInjection, why: str) -> ConflictError:
    return ConflictError(f"{strike.fault} cannot hit {strike.target}: {why}", fix="try again once the job trains")
