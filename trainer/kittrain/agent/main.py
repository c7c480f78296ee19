"""Runs one node of a job: ``python -m kittrain.agent -- train.py --epochs 5`` (or ``-- -m package.module``).

Joins the other nodes, runs torchrun's elastic agent on the command, and rejoins when the rendezvous is lost. The exit
code tells Kubernetes, or the local supervisor, whether to restart the node (``kitjob.names.EXIT_CODES``).
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import kitjob
from kitjob.durations import seconds
from kitjob.names import EXIT_CODES
from kittrain.agent.processes.mirror import MirrorCheck
from kittrain.agent.processes.pod_supervisor import supervise
from kittrain.agent.processes.supervision import Supervision
from kittrain.agent.processes.zygote import Zygote, names_library
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.report.history import CLOSE_TIMEOUT, History
from kittrain.agent.report.last_step import after_the_end, report_last_step
from kittrain.agent.report.log_copy import LogCopy, open_log_copy
from kittrain.agent.rounds.drain import Drain, DrainRequested
from kittrain.agent.rounds.interruption import HOLD, InterruptionWatch, sources_of
from kittrain.agent.setup.host_info import share_cores
from kittrain.agent.setup.memory import memory_folder
from kittrain.agent.setup.pip_install import RequirementsError, RequirementsUnavailableError
from kittrain.agent.setup.requirements import required_packages
from kittrain.agent.setup.run_identity import with_run_uid
from kittrain.agent.setup.scratch import scratch_folder
from kittrain.agent.setup.secret import run_secret
from kittrain.agent.setup.shared_outputs import OutputsError, share_outputs
from kittrain.agent.setup.workdir import CodeError, enter_workdir
from kittrain.job.env import NodeEnv, node_env
from kittrain.job.variables import EnvError
from kittrain.outcome import marker, termination
from kittrain.outcome.marker import finished
from kittrain.outcome.termination import Ending
from kittrain.system import console
from kittrain.system.apiserver import ApiError
from kittrain.system.child_processes import show_as
from kittrain.system.console import log
from kittrain.system.imports import without_gc
from kittrain.system.parent_death import adopt_orphans
from kittrain.system.port import PortBusyError
from kittrain.system.storage import StorageUnavailableError, retry_io

if TYPE_CHECKING:
    from kittrain.agent.metrics.node_metrics import NodeMetrics
    from kittrain.agent.rounds.supervise import Supervisor


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
        metrics = _metrics(node)
        history = History(node, partial(log, node.node_index), metrics)
        ending = _run(node, command, drain, log_copy, supervision, history, metrics)
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


def _check(node: NodeEnv, command: list[str]) -> Ending | None:
    """The checks that need no torch; None if the node can go on.

    Raises:
        StorageUnavailableError: the storage does not answer, so it is unknown whether the run has finished.
    """
    if (folder := node.snapshot_dir) and retry_io(
        lambda: finished(folder, node.run_id), folder, lambda text: log(node.node_index, f"warning: {text}")
    ):
        if node.run.owner:
            return _ambiguous(node, marker.path(folder, node.run_id))
        report_last_step(node, partial(log, node.node_index))
        return termination.FINISHED
    if not command:
        return Ending(outcome="fatal", reason="no command: pass a script, or -m and a module, after --")
    if command[0] == "-m":
        return None if len(command) > 1 else Ending(outcome="fatal", reason="-m without a module")
    if not Path(command[0]).is_file():
        return Ending(outcome="fatal", reason=f"the script {command[0]} does not exist in {Path.cwd()}")
    return None


def _ambiguous(node: NodeEnv, mark: Path) -> Ending:
    """Fail: a run with this id has finished, and this node may belong to a new run that has not trained yet."""
    fix = (
        f"submit it with kitctl, let its service account get {node.run.owner} (security.reportStatus), or delete {mark}"
    )
    return Ending(outcome="fatal", reason=f"run {node.run_id} has already finished; if this is a new run, {fix}")


def _run(
    node: NodeEnv,
    command: list[str],
    drain: Drain,
    log_copy: LogCopy | None,
    supervision: Supervision | None,
    history: History,
    metrics: NodeMetrics | None,
) -> Ending:
    if node.run.kitctl not in {"", kitjob.__version__}:
        log(node.node_index, f"warning: kitctl is version {node.run.kitctl}, but kittrain is {kitjob.__version__}")
    try:
        with drain.interruptible():
            node = with_run_uid(node, os.environ, partial(log, node.node_index))
        enter_workdir(node, partial(log, node.node_index))
        share_outputs(node, partial(log, node.node_index))
        watch = _interruption_watch(node, drain)
        with drain.interruptible():
            ended = after_the_end(node, partial(log, node.node_index))
        if ending := ended or _check(node, command) or _hold(node, drain, watch):
            return ending
        with drain.interruptible():
            node = replace(node, packages=required_packages(node, partial(log, node.node_index)))
        history.state("start")
        return _supervise(node, command, drain, log_copy, supervision, history, metrics, watch)
    except DrainRequested:
        return Ending(outcome="drained", reason=drain.reason)
    except (EnvError, CodeError, OutputsError, RequirementsError, TorchError) as error:
        return Ending(outcome="fatal", reason=str(error))
    except (ApiError, PortBusyError, RequirementsUnavailableError, StorageUnavailableError) as error:
        return Ending(outcome="retryable", reason=str(error))
    except Exception as error:  # noqa: BLE001  every error must reach the termination message
        log(node.node_index, traceback.format_exc())
        return Ending(outcome="retryable", reason=f"the agent failed: {type(error).__name__}: {error}")


def _hold(node: NodeEnv, drain: Drain, watch: InterruptionWatch | None) -> Ending | None:
    """Do not begin on a machine that is about to be taken away; None: it is not, or nobody asked to look.

    The node waits before it ends: until the scheduler knows, its replacement would be started there at once.

    Raises:
        DrainRequested: a drain was requested meanwhile.
    """
    if watch is None or not (reason := watch.now()):
        return None
    log(node.node_index, f"{reason}: not starting here")
    with drain.interruptible():
        time.sleep(HOLD)
    return Ending(outcome="drained", reason=reason)


def _interruption_watch(node: NodeEnv, drain: Drain) -> InterruptionWatch | None:
    sources = sources_of(node)
    return InterruptionWatch(sources, drain, partial(log, node.node_index)) if sources else None


def _supervise(
    node: NodeEnv,
    command: list[str],
    drain: Drain,
    log_copy: LogCopy | None,
    supervision: Supervision | None,
    history: History,
    metrics: NodeMetrics | None,
    watch: InterruptionWatch | None,
) -> Ending:
    """Set up the node, starting with what other nodes wait for, and run it until it ends."""
    settings = RendezvousSettings.from_conf(node.rendezvous_conf, lost_after=seconds(node.job.policy.lost_after))
    adopt_orphans()
    mirror = MirrorCheck(node, partial(log, node.node_index))  # it takes as long as importing torch does
    share_cores(node, os.environ)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        stack.enter_context(memory_folder(node))
        with drain.interruptible():
            hosts = node.hosts_rendezvous
            secret = run_secret(node, partial(log, node.node_index))
            hub = stack.enter_context(hub_process(node, settings, secret=secret)) if hosts else None
            supervisor = load()
            zygote = _zygote(node, command, supervision, stack)
        _quiet_torch()
        if log_copy:
            log_copy.start()  # starts a thread, so only after the zygote is forked
            node = replace(node, agent_runs=log_copy.agent_runs)
        history.open(node)  # this, too
        if ending := mirror.ending():
            return ending
        if metrics:
            _offer(node, metrics, history)  # and this
        if node.job.metrics.tensorboard:
            _write_events(node, history, stack)
        if watch:
            watch.start()  # and this
        instance = supervisor(
            node,
            command,
            settings=settings,
            secret=secret,
            hub=hub,
            zygote=zygote,
            drain=drain,
            scratch=scratch,
            history=history,
        )
        if metrics:
            metrics.stored = instance.stored
        return instance.run()


def _metrics(node: NodeEnv) -> NodeMetrics | None:
    """What counts for Prometheus; None, and no import, where the job does not ask for it."""
    if not node.job.metrics.enabled:
        return None
    from kittrain.agent.metrics.node_metrics import NodeMetrics  # noqa: PLC0415

    return NodeMetrics(node)


def _offer(node: NodeEnv, metrics: NodeMetrics, history: History) -> None:
    from kittrain.agent.metrics.served import offer  # noqa: PLC0415

    offer(node, metrics, lambda: history.now, partial(log, node.node_index))


def _write_events(node: NodeEnv, history: History, stack: ExitStack) -> None:
    """Write TensorBoard events until the stack is closed; starts a thread with the first step."""
    from kittrain.agent.metrics.tensorboard import TensorBoard  # noqa: PLC0415

    board = TensorBoard(node, partial(log, node.node_index), lambda: history.now)
    history.listen(board)
    stack.callback(board.close, CLOSE_TIMEOUT)


def _zygote(node: NodeEnv, command: list[str], supervision: Supervision | None, stack: ExitStack) -> Zygote | None:
    """The process that ranks are forked from, until the stack is closed; in a pod it may then become the next agent."""
    if not node.warm_workers or sys.platform != "linux":
        return None
    zygote = Zygote(supervision, library=names_library(command), ahead=node.procs_per_node)
    stack.callback(zygote.leave if supervision else zygote.close)
    return zygote


class TorchError(Exception):
    """Torch cannot train here: it does not load, or is built without what nodes need."""


def load() -> type[Supervisor]:
    """Import torch and the supervisor, which needs it.

    Raises:
        TorchError: that fails, as it would each time.
    """
    with without_gc():
        try:
            import torch.distributed  # noqa: PLC0415
        except ImportError as error:
            raise TorchError(f"torch cannot be imported: {error}") from error
        if not torch.distributed.is_available():
            raise TorchError(f"torch {torch.__version__} is built without torch.distributed")
        from kittrain.agent.rounds.supervise import Supervisor  # noqa: PLC0415
    return Supervisor


def _quiet_torch() -> None:
    """Silence torch's logger in the agent, which logs the same events itself. Ranks are not affected."""
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.getLogger("torch.distributed").handlers[:] = [logging.NullHandler()]  # it does not propagate
