"""The training loop: steps in the data's order, snapshots, and the same last step on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kittrain.env import WORKER_DRAINED
from kittrain.outcome.completion import mark_finished
from kittrain.snapshots.manager import SnapshotManager
from kittrain.snapshots.state import State
from kittrain.system.heartbeat import Phase
from kittrain.training import batchnorm
from kittrain.training.gradients import AveragedGradients, Gradients, Loss, Parts
from kittrain.training.report import Reporter
from kittrain.training.snapshot_schedule import SnapshotSchedule
from kittrain.training.step_sync import Step, StepMessage, StepSync, StopRequest
from kittrain.training.virtual_ranks import VirtualRanks
from kittrain.world.data import Data
from kittrain.world.distributed import World
from kittrain.world.order import Cursor, Span
from kittrain.world.replicas import DDPOptions

OnStep = Callable[[Step], None]
OnEpoch = Callable[[int], Mapping[str, float]]


class Drained(SystemExit):
    """All ranks stopped at the same step because one was asked to; the exit code asks for a restart."""

    def __init__(self) -> None:
        super().__init__(WORKER_DRAINED)


@dataclass
class Training:
    """A training run: a model, its optimizer, loss and data. Collective: all ranks create the same one.

    Attributes:
        world: from ``join``; its environment has the folder of snapshots and the steps between them.
        model: any module; it is moved to the world's device, and is not wrapped for the caller.
        optimizer: of the model's parameters.
        loss: from the model and a batch, the mean loss over the batch's samples.
        data: the training data.
        epochs: passes over the data, including those before a restart.
        scheduler: of the learning rate; stepped after each optimizer step.
        snapshot_every: steps between snapshots, instead of the environment's.
        virtual_ranks: instead of the environment's; unless it is 0, the bits do not depend on the number of ranks.
        ddp: options of DDP, such as ``DDPOptions(find_unused_parameters=True)``; unused by a lone process.
        on_step: called on every rank for every step, in order, once its loss is known, and before a snapshot that
            includes it is committed.
        on_epoch: called on all ranks after each epoch, with its number from 0 on; returns the epoch's metrics, which
            have to be equal on all ranks.

    Raises:
        ValueError: there are no epochs, or no steps between snapshots.
    """

    world: World
    model: nn.Module
    optimizer: Optimizer
    loss: Loss
    data: Data
    _: KW_ONLY
    epochs: int
    scheduler: LRScheduler | None = None
    snapshot_every: int | None = None
    virtual_ranks: int | None = None
    ddp: DDPOptions = field(default_factory=DDPOptions)
    on_step: OnStep | None = None
    on_epoch: OnEpoch | None = None

    def __post_init__(self) -> None:
        every = self.world.env.snapshot_every if self.snapshot_every is None else self.snapshot_every
        if self.epochs < 1 or every < 1:
            raise ValueError(f"{self.epochs} epochs, a snapshot every {every} steps: both need to be 1 or more")
        self._schedule = SnapshotSchedule(self.world.env, every=every)
        memory_every = self.world.env.memory_every
        self._memory_schedule = SnapshotSchedule(self.world.env, every=memory_every) if memory_every else None
        self._metrics: Mapping[str, float] = {}
        self._report = Reporter(self.world, self.data.order, epochs=self.epochs)
        state = State(model=self.model.to(self.world.device), optimizer=self.optimizer, scheduler=self.scheduler)
        self._snapshots = SnapshotManager(self.world, state, self.data.order)
        self._sync = StepSync(self.world)

    def fit(self) -> None:
        """Train from the newest saved state, or from the start, to the end of the last epoch.

        Afterwards the folder of snapshots holds the model's file and a marker that the run has finished.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken.
            SnapshotError: the snapshots cannot be used, or the trained model cannot be written.
            Fenced: ranks of a newer generation have taken over.
        """
        with StopRequest() as request, self._report, self._snapshots:
            beat = self.world.heartbeat.beat
            beat(Phase.RESTORING)
            begin = cursor = self._snapshots.restore()
            self._schedule.restart(self._snapshots.committed.step)
            self._report_start(begin)
            gradients = self._gradients()
            beat(Phase.DATA, step=self.data.order.step(begin))
            spans = self.data.order.spans(begin, self.epochs)
            for span, parts in zip(spans, gradients.batches(begin, self.epochs), strict=True):
                cursor = self._train_step(gradients, span, parts, request)
                if cursor.position == 0:
                    self._end_epoch(span.epoch)
                if cursor.epoch == self.epochs:
                    break
                if self._sync.received.stop:
                    self._drain(cursor)
                self._save(cursor)
                beat(Phase.DATA)
            if cursor != begin:
                self._commit(cursor)
            self._snapshots.finish()
            mark_finished()
            beat(Phase.FINISHING)

    def _gradients(self) -> Gradients:
        virtual = self.world.env.virtual_ranks if self.virtual_ranks is None else self.virtual_ranks
        if warning := batchnorm.warning(self.model, self.data.order, virtual or self.world.size):
            self.world.print(f"warning: {warning}")
        if virtual:
            return VirtualRanks(self.world, self.model, self.loss, self.data, virtual)
        return AveragedGradients(self.world, self.model, self.loss, self.data, self.ddp)

    def _train_step(self, gradients: Gradients, span: Span, parts: Parts, request: StopRequest) -> Cursor:
        """One optimizer step; returns the cursor after it."""
        beat = self.world.heartbeat.beat
        beat(Phase.FORWARD)
        self.optimizer.zero_grad()
        mean = gradients.backward(parts, lambda: self._message(request))
        beat(Phase.UPDATING)
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()
        cursor = self.data.order.after(span)
        step = Step(
            number=self.data.order.step(cursor),
            generation=self._snapshots.generation,
            cursor=cursor,
            ids=[sample for part in parts for sample in part.ids],
            size=span.size,
        )
        beat(Phase.SYNCING, step=step.number)
        self._report_step(self._sync.send(step, mean))
        return cursor

    def _message(self, request: StopRequest) -> StepMessage:
        return StepMessage(
            stop=request.requested,
            written=self._snapshots.written,
            due=self._schedule.time_due,
            copied=self._snapshots.memory_ready,
        )

    def _end_epoch(self, epoch: int) -> None:
        self.world.heartbeat.beat(Phase.EVALUATING)
        self._report_step(self._sync.flush())
        metrics = self.on_epoch(epoch) if self.on_epoch else {}
        self._metrics = {name: float(value) for name, value in metrics.items()}
        self._report.epoch(epoch, self._metrics)

    def _save(self, cursor: Cursor) -> None:
        """Begin a snapshot, and a copy in memory, if one is due.

        A snapshot that is due while another is being written waits for it, unless it may become the best one: only
        the state at this step has the metric.
        """
        step, received, metrics = self.data.order.step(cursor), self._sync.received, self._metrics_at(cursor)
        if not self._snapshots.prepared:
            self.world.heartbeat.beat(Phase.SAVING)
            self._snapshots.prepare()
        self._snapshots.advance(written=received.written)
        due = self._schedule.is_due(step, time_due=received.due) and not self._snapshots.pending
        due = due or self._schedule.has_best_metric(metrics)
        copy = (
            received.copied and self._memory_schedule is not None and self._memory_schedule.is_due(step, time_due=False)
        )
        if due or copy:
            self.world.heartbeat.beat(Phase.SAVING)
            self._report_step(self._sync.flush())
        if due:
            self._snapshots.begin(cursor, metrics)
            self._schedule.restart(step)
        if self._memory_schedule and copy:
            self._snapshots.copy_to_memory(cursor, metrics)
            self._memory_schedule.restart(step)
        self._report.snapshot(self._snapshots.committed)

    def _commit(self, cursor: Cursor) -> None:
        """Take a snapshot, and wait for it."""
        self.world.heartbeat.beat(Phase.SAVING)
        self._report_step(self._sync.flush())
        self._snapshots.commit(cursor, self._metrics_at(cursor))
        self._report.snapshot(self._snapshots.committed)

    def _metrics_at(self, cursor: Cursor) -> Mapping[str, float]:
        """The metrics of the epoch that ends at a cursor, if one does."""
        return self._metrics if cursor.position == 0 else {}

    def _drain(self, cursor: Cursor) -> None:
        self._commit(cursor)
        self.world.print(f"stopping at step {self.data.order.step(cursor)}, as requested")
        self.world.barrier()  # then exit code 75 of any rank means that the snapshot is committed
        raise Drained

    def _report_step(self, step: Step | None) -> None:
        if step is None:
            return
        self._report.step(step)
        if self.on_step:
            self.on_step(step)

    def _report_start(self, begin: Cursor) -> None:
        ranks = f"{self.world.size} ranks" if self.world.size > 1 else "1 rank"
        steps = self.data.order.step(begin)
        start = f"resuming after step {steps}, in epoch {begin.epoch + 1}" if steps else "training"
        if steps > self._snapshots.committed.step:
            start += ", from copies in memory,"
        self._report.begin(steps)
        self.world.print(f"{start} with {ranks} on {self.world.device.type}, {self.data.order.batch} samples per step")
