"""One agent's run of its node: from the checks, over what is forked before any thread starts, to its end."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import kitjob
from kitjob.durations import seconds
from kittrain.agent.processes.mirror import MirrorCheck
from kittrain.agent.processes.supervision import Supervision
from kittrain.agent.processes.zygote import Zygote, names_library
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.report.history import CLOSE_TIMEOUT, History
from kittrain.agent.report.last_step import after_the_end, report_last_step
from kittrain.agent.report.log_copy import LogCopy
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
from kittrain.job.env import NodeEnv
from kittrain.job.variables import EnvError
from kittrain.outcome import marker, termination
from kittrain.outcome.termination import Ending
from kittrain.system.apiserver import ApiError
from kittrain.system.console import log
from kittrain.system.imports import without_gc
from kittrain.system.parent_death import adopt_orphans
from kittrain.system.port import PortBusyError
from kittrain.system.storage import StorageUnavailableError, retry_io

if TYPE_CHECKING:
    from kittrain.agent.metrics.node_metrics import NodeMetrics
    from kittrain.agent.rounds.supervise import Supervisor


class TorchError(Exception):
    """Torch cannot train here: it does not load, or is built without what nodes need."""


@dataclass(kw_only=True)
class NodeRun:
    """Sets up a node, and runs its part of the job.

    Attributes:
        node: its environment; more of it is known as the setup goes on.
        command: the script and its arguments, or ``-m`` and a module.
        drain: the drain request.
        history: the node's.
        metrics: what counts for Prometheus; None: the job does not ask for it.
        log_copy: the copy of its output; None: there is none.
        supervision: by the pod's supervisor; None: there is none.
    """

    node: NodeEnv
    command: list[str]
    drain: Drain
    history: History
    metrics: NodeMetrics | None
    log_copy: LogCopy | None
    supervision: Supervision | None

    @cached_property
    def log(self) -> Callable[[str], None]:
        """Prints a line of this node."""
        return partial(log, self.node.node_index)

    def run(self) -> Ending:
        """Run the node; every error becomes an ending, which is told in the termination message."""
        if self.node.run.kitctl not in {"", kitjob.__version__}:
            self.log(f"warning: kitctl is version {self.node.run.kitctl}, but kittrain is {kitjob.__version__}")
        try:
            with self.drain.interruptible():
                self.node = with_run_uid(self.node, os.environ, self.log)
            enter_workdir(self.node, self.log)
            share_outputs(self.node, self.log)
            sources = sources_of(self.node)
            watch = InterruptionWatch(sources, self.drain, self.log) if sources else None
            with self.drain.interruptible():
                ended = after_the_end(self.node, self.log)
            if ending := ended or self._check() or self._hold(watch):
                return ending
            with self.drain.interruptible():
                self.node = replace(self.node, packages=required_packages(self.node, self.log))
            self.history.state("start")
            return self._supervise(watch)
        except DrainRequested:
            return Ending(outcome="drained", reason=self.drain.reason)
        except (EnvError, CodeError, OutputsError, RequirementsError, TorchError) as error:
            return Ending(outcome="fatal", reason=str(error))
        except (ApiError, PortBusyError, RequirementsUnavailableError, StorageUnavailableError) as error:
            return Ending(outcome="retryable", reason=str(error))
        except Exception as error:  # noqa: BLE001  likewise
            self.log(traceback.format_exc())
            return Ending(outcome="retryable", reason=f"the agent failed: {type(error).__name__}: {error}")

    def _check(self) -> Ending | None:
        """The checks that need no torch; None if the node can go on.

        Raises:
            StorageUnavailableError: the storage does not answer, so it is unknown whether the run has finished.
        """
        node, command = self.node, self.command
        if (folder := node.snapshot_dir) and retry_io(
            lambda: marker.finished(folder, node.run_id), folder, lambda text: self.log(f"warning: {text}")
        ):
            if node.run.owner:
                return _ambiguous(node, marker.path(folder, node.run_id))
            report_last_step(node, self.log)
            return termination.FINISHED
        if not command:
            return Ending(outcome="fatal", reason="no command: pass a script, or -m and a module, after --")
        if command[0] == "-m":
            return None if len(command) > 1 else Ending(outcome="fatal", reason="-m without a module")
        if not Path(command[0]).is_file():
            return Ending(outcome="fatal", reason=f"the script {command[0]} does not exist in {Path.cwd()}")
        return None

    def _hold(self, watch: InterruptionWatch | None) -> Ending | None:
        """Do not begin on a machine that is about to be taken away; None: it is not, or nobody asked to look.

        The node waits before it ends: until the scheduler knows, its replacement would be started there at once.

        Raises:
            DrainRequested: a drain was requested meanwhile.
        """
        if watch is None or not (reason := watch.now()):
            return None
        self.log(f"{reason}: not starting here")
        with self.drain.interruptible():
            time.sleep(HOLD)
        return Ending(outcome="drained", reason=reason)

    def _supervise(self, watch: InterruptionWatch | None) -> Ending:
        """Fork what is to be forked, starting with what other nodes wait for; then start threads, and run the rounds.

        A process that is forked from one with threads may find locks held that nobody releases.
        """
        settings = RendezvousSettings.from_conf(
            self.node.rendezvous_conf, lost_after=seconds(self.node.job.policy.lost_after)
        )
        adopt_orphans()
        mirror = MirrorCheck(self.node, self.log)  # it takes as long as importing torch does
        share_cores(self.node, os.environ)
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_folder())
            stack.enter_context(memory_folder(self.node))
            with self.drain.interruptible():
                secret = run_secret(self.node, self.log)
                hosts = self.node.hosts_rendezvous
                hub = stack.enter_context(hub_process(self.node, settings, secret=secret)) if hosts else None
                supervisor = load_supervisor()
                zygote = self._zygote(stack)
            _quiet_torch()
            self._start_threads(stack, watch)
            if ending := mirror.ending():
                return ending
            instance = supervisor(
                self.node,
                self.command,
                settings=settings,
                secret=secret,
                hub=hub,
                zygote=zygote,
                drain=self.drain,
                scratch=scratch,
                history=self.history,
            )
            if self.metrics:
                self.metrics.stored = instance.stored
            return instance.run()

    def _zygote(self, stack: ExitStack) -> Zygote | None:
        """The process that ranks are forked from, until the stack is closed.

        In a pod it may then become the next agent.
        """
        if not self.node.warm_workers or sys.platform != "linux":
            return None
        library = names_library(self.command)
        zygote = Zygote(self.supervision, library=library, ahead=self.node.procs_per_node)
        stack.callback(zygote.leave if self.supervision else zygote.close)
        return zygote

    def _start_threads(self, stack: ExitStack, watch: InterruptionWatch | None) -> None:
        """Start what copies logs, keeps the history, serves metrics, writes events, and watches for interruptions."""
        if self.log_copy:
            self.log_copy.start()
            self.node = replace(self.node, agent_runs=self.log_copy.agent_runs)
        self.history.open(self.node)
        if self.metrics:
            from kittrain.agent.metrics.served import offer  # noqa: PLC0415  only where the job asks for it

            offer(self.node, self.metrics, lambda: self.history.now, self.log)
        if self.node.job.metrics.tensorboard:
            from kittrain.agent.metrics.tensorboard import TensorBoard  # noqa: PLC0415  likewise

            board = TensorBoard(self.node, self.log, lambda: self.history.now)
            self.history.listen(board)
            stack.callback(board.close, CLOSE_TIMEOUT)
        if watch:
            watch.start()


def node_metrics(node: NodeEnv) -> NodeMetrics | None:
    """What counts for Prometheus; None, and no import, where the job does not ask for it."""
    if not node.job.metrics.enabled:
        return None
    from kittrain.agent.metrics.node_metrics import NodeMetrics  # noqa: PLC0415

    return NodeMetrics(node)


def load_supervisor() -> type[Supervisor]:
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


def _ambiguous(node: NodeEnv, mark: Path) -> Ending:
    """Fail: a run with this id has finished, and this node may belong to a new run that has not trained yet."""
    fix = (
        f"submit it with kitctl, let its service account get {node.run.owner} (security.reportStatus), or delete {mark}"
    )
    return Ending(outcome="fatal", reason=f"run {node.run_id} has already finished; if this is a new run, {fix}")


def _quiet_torch() -> None:
    """Silence torch's logger in the agent, which logs the same events itself. Ranks are not affected."""
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.getLogger("torch.distributed").handlers[:] = [logging.NullHandler()]  # it does not propagate
