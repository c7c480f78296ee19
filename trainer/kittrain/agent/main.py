"""Runs one node of a job: ``python -m kittrain.agent -- train.py --epochs 5`` (or ``-- -m package.module``).

Joins the other nodes, runs torchrun's elastic agent on the command, and rejoins when the rendezvous is lost. The exit
code tells Kubernetes, or the local supervisor, whether to restart the node (``kitjob.names.EXIT_CODES``).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from kitjob.names import EXIT_CODES
from kittrain.agent.node_run import NodeRun, node_metrics
from kittrain.agent.processes.pod_supervisor import supervise
from kittrain.agent.processes.supervision import Supervision
from kittrain.agent.report.history import History
from kittrain.agent.report.log_copy import LogCopy, open_log_copy
from kittrain.agent.rounds.drain import Drain
from kittrain.job.env import NodeEnv, node_env
from kittrain.job.variables import EnvError
from kittrain.outcome import termination
from kittrain.outcome.termination import Ending
from kittrain.system import console
from kittrain.system.child_processes import show_as
from kittrain.system.console import log


def start(arguments: list[str]) -> int:
    """Run the node, in a pod under a supervisor, which is the init of a container without one; returns the code."""
    try:
        node = node_env()
    except EnvError as error:
        return _misconfigured(error)
    if sys.platform == "linux" and (node.run.restart_in_place or os.getpid() == 1):
        return supervise(node, partial(main, arguments))
    return main(arguments)


def main(arguments: list[str], supervision: Supervision | None = None) -> int:
    """Run the node; returns the agent's exit code."""
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    drain = Drain()
    drain.install()
    try:
        node = node_env()
    except EnvError as error:
        return _misconfigured(error)
    show_as(f"kit-agent-{node.node_index}")
    if supervision:
        node = replace(node, agent_restarts=supervision.restart.count, restart_cause=supervision.restart.cause)
    with _log_copy(node, supervision.started if supervision else time.time()) as log_copy:
        if node.agent_restarts:
            log(node.node_index, f"started again in place, restart {node.agent_restarts}: {node.restart_cause}")
        metrics = node_metrics(node)
        history = History(node, partial(log, node.node_index), metrics)
        ending = NodeRun(
            node=node,
            command=command,
            drain=drain,
            history=history,
            metrics=metrics,
            log_copy=log_copy,
            supervision=supervision,
        ).run()
        history.end(ending.outcome, ending.reason)
        history.close()
        termination.write(node.termination_log, ending, node_index=node.node_index)
        log(node.node_index, ending.summary)
    return node.run.exit_codes[ending.outcome]


@contextmanager
def _log_copy(node: NodeEnv, started: float) -> Iterator[LogCopy | None]:
    """Copy this node's output to the log folder, if there is one."""
    log_copy = open_log_copy(node, partial(log, node.node_index), started=started)
    if log_copy is None:
        yield None
        return
    console.set_copy(log_copy.write)
    try:
        yield log_copy
    finally:
        console.set_copy(None)
        log_copy.close()


def _misconfigured(error: EnvError) -> int:
    """Report an invalid environment. The exit codes are not known then, so this uses the default table."""
    path = os.environ.get("KIT_TERMINATION_LOG")
    termination.write(Path(path) if path else None, Ending(outcome="fatal", reason=str(error)), node_index=-1)
    log(-1, f"fatal: {error}")
    return EXIT_CODES["fatal"]
