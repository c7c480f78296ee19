"""A run whose loop is a framework's: progress, the agreement on a stop, and checkpoints that all ranks completed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor

from kittrain.integrations import checkpoints
from kittrain.integrations.checkpoints import Marker
from kittrain.job.env import rank_env
from kittrain.rank.snapshots.folder.chain import Committed
from kittrain.rank.training.report import Plan, ProgressReporter
from kittrain.rank.training.session import Drained
from kittrain.rank.training.step_sync import Step, StepMessage, StepSync, StopRequest, all_reduce_message
from kittrain.rank.world.attach import attach
from kittrain.rank.world.distributed import DistributedError, World
from kittrain.rank.world.order import Cursor
from kittrain.system.heartbeat import HeartbeatWriter, Phase


class FrameworkRun:
    """Context manager around a framework's training loop. Call it on the main thread, and ``step`` on all ranks.

    Args:
        world: all ranks.

    Attributes:
        world: all ranks.
        plan: of the run, for reports.
        loss: the last one known, equal on all ranks; NaN before.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.plan = Plan()
        self.loss = float("nan")
        self._request = StopRequest()
        self._report = ProgressReporter(world, self.plan)
        self._sync = StepSync(world)
        self._metrics: dict[str, float] = {}
        self._saving = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._request)
            stack.enter_context(self._report)
            self._stack = stack.pop_all()
        self.world.heartbeat.beat(Phase.RESTORING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def begin(self, step: int, notes: str = "") -> None:
        """Training starts, or resumes, after this step."""
        start = f"resuming after step {step}" if step else "training"
        ranks = f"{self.world.size} ranks" if self.world.size > 1 else "1 rank"
        self._report.snapshot(Committed(step=step))
        self._report.begin(step)
        self.world.print(f"{start} with {ranks} on {self.world.device.type}{notes}")
        self.world.heartbeat.beat(Phase.DATA, step=step)

    def step(
        self, number: int, *, epoch: int, samples: int, loss: Tensor | None = None, due: bool = False
    ) -> StepMessage:
        """An optimizer step has ended. Collective.

        Args:
            number: of the step, from 1 on.
            epoch: it belongs to, from 0 on.
            samples: of this rank in the step.
            loss: of this rank; None: the last one that was set.
            due: a checkpoint is, by this rank's clock.

        Returns:
            What the ranks asked for up to the step before, the same on all of them.
        """
        world = self.world
        loss = torch.tensor(self.loss) if loss is None else loss.detach()
        part = loss.to(world.device, torch.float64) / world.size
        mean = all_reduce_message(part, StepMessage(stop=self._request.requested, due=due), samples=samples)
        step = Step(number=number, generation=0, cursor=Cursor(), ids=[], size=0, epoch=epoch)
        self.world.heartbeat.beat(Phase.SYNCING, step=number)
        self._show(self._sync.send(step, mean))
        return self._sync.received

    def log(self, metrics: Mapping[str, float]) -> None:
        """Show metrics in the job's status, besides those shown already."""
        self._metrics |= metrics
        self._report.metrics(self._metrics)

    def saving(self) -> None:
        """The framework begins to write a checkpoint."""
        self._saving = time.monotonic()
        self._report.saving()
        self.world.heartbeat.beat(Phase.SAVING)

    def saved(self, checkpoint: Path, marker: Marker, finish: Callable[[Path], Path] = lambda path: path) -> None:
        """This rank has written its part of a checkpoint: mark it once all have. Collective.

        Args:
            checkpoint: its folder.
            marker: for it.
            finish: what rank 0 does once all parts are written; returns where the checkpoint is then.
        """
        if self.world.env.local_rank == 0:
            checkpoints.sync(checkpoint)
        self.world.barrier()
        if self.world.is_main:
            checkpoints.complete(finish(checkpoint), marker)
        seconds = time.monotonic() - self._saving
        self._report.snapshot(Committed(step=marker.step, time=time.time(), seconds=seconds, stall=seconds))
        self.continues(ended=bool(marker.limit))

    def continues(self, *, ended: bool) -> None:
        """The next batch is loaded; or training has ended, and the script's own code comes next."""
        self.world.heartbeat.beat(Phase.FINISHING if ended else Phase.DATA)

    def evaluating(self) -> None:
        """The framework begins an evaluation, which has its own time limit."""
        self.world.heartbeat.beat(Phase.EVALUATING)

    def drain(self, step: int) -> None:
        """Stop, with a checkpoint saved after this step. Collective.

        Raises:
            Drained: always.
        """
        self.end()
        self.world.print(f"stopping at step {step}, as requested")
        self.world.barrier()  # then exit code 75 of any rank means that the checkpoint is complete
        raise Drained

    def end(self) -> None:
        """The loop has ended: show its last step. Collective."""
        self._show(self._sync.flush())
        self._report.flush()
        self.world.heartbeat.beat(Phase.FINISHING)

    def _show(self, steps: list[Step]) -> None:
        for step in steps:
            self._report.step(step)


def joined(advice: str) -> World:
    """The world of the process group that the framework has formed; a single rank needs none.

    Args:
        advice: what helps where there are several ranks and no group.

    Raises:
        DistributedError: that is so.
    """
    env = rank_env()
    if dist.is_initialized():
        return attach(env=env)
    if env.world_size > 1:
        raise DistributedError(f"the ranks have no process group, so each would train alone: {advice}")
    return World(env=env, device=torch.device("cpu"), heartbeat=HeartbeatWriter(env.heartbeat_file))
