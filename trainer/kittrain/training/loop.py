"""The training loop: steps in the data's order, snapshots on the way, and the same end on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kittrain.env import WORKER_DRAINED
from kittrain.outcome.completion import mark_finished
from kittrain.snapshots.history import History
from kittrain.snapshots.state import State
from kittrain.system.heartbeat import Phase
from kittrain.training import batchnorm
from kittrain.training.cadence import Cadence
from kittrain.training.gradients import Averaged, Gradients, Loss, Parts
from kittrain.training.pulse import Pulse, Step, StopRequest, Word
from kittrain.training.report import Reporter
from kittrain.training.virtual import VirtualRanks
from kittrain.world.data import Data
from kittrain.world.distributed import World
from kittrain.world.order import Cursor, Span
from kittrain.world.replicas import DDPOptions

OnStep = Callable[[Step], None]
OnEpoch = Callable[[int], Mapping[str, float]]


class Drained(SystemExit):
    """All ranks stopped at the same step because one was asked to; the exit code says that they want to go on."""

    def __init__(self) -> None:
        super().__init__(WORKER_DRAINED)


@dataclass
class Training:
    """A model, how it learns, and what from. Collective: all ranks make one alike.

    Attributes:
        world: from ``join``; its environment says where snapshots go and how many steps lie between them.
        model: any module; it is moved to the world's device, and stays the caller's own.
        optimizer: of the model's parameters.
        loss: from the model and a batch, the mean loss over the batch's samples.
        data: what to learn from.
        epochs: passes over the data, those before a restart included.
        scheduler: of the learning rate; stepped once an optimizer step.
        snapshot_every: steps between snapshots, instead of the environment's.
        virtual_ranks: instead of the environment's; with any but 0 the bits do not depend on the number of ranks.
        ddp: what DDP is told where there are several ranks, such as ``DDPOptions(find_unused_parameters=True)``.
        on_step: called on every rank for every step, in order, once its loss is known, and before a snapshot that
            includes it is committed.
        on_epoch: called on all ranks behind each epoch, with its number from 0 on; what it gives is told as metrics,
            which all ranks give alike.

    Raises:
        ValueError: there is nothing to train, or no step between snapshots.
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
        self._cadence = Cadence(self.world.env, every=every)
        kept_every = self.world.env.memory_every
        self._kept_cadence = Cadence(self.world.env, every=kept_every) if kept_every else None
        self._metrics: Mapping[str, float] = {}
        self._report = Reporter(self.world, self.data.order, epochs=self.epochs)
        state = State(model=self.model.to(self.world.device), optimizer=self.optimizer, scheduler=self.scheduler)
        self._history = History(self.world, state, self.data.order)
        self._pulse = Pulse(self.world)

    def fit(self) -> None:
        """Train from the newest state that is kept, or from the start, to the end of the last epoch.

        Then the folder of snapshots holds the model's file and the mark that the run has finished.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken.
            SnapshotError: the snapshots cannot be used, or the trained model cannot be written.
            Fenced: newer ranks of this run have taken over.
        """
        with StopRequest() as request, self._report, self._history:
            beat = self.world.heart.beat
            beat(Phase.RESTORING)
            begin = cursor = self._history.restore()
            self._cadence.begin(self._history.committed.step)
            self._tell_start(begin)
            gradients = self._gradients()
            beat(Phase.DATA, step=self.data.order.step(begin))
            spans = self.data.order.spans(begin, self.epochs)
            for span, parts in zip(spans, gradients.batches(begin, self.epochs), strict=True):
                cursor = self._learn(gradients, span, parts, request)
                if cursor.position == 0:
                    self._end_epoch(span.epoch)
                if cursor.epoch == self.epochs:
                    break
                if self._pulse.heard.stop:
                    self._drain(cursor)
                self._save(cursor)
                beat(Phase.DATA)
            if cursor != begin:
                self._commit(cursor)
            self._history.finish()
            mark_finished()
            beat(Phase.LEAVING)

    def _gradients(self) -> Gradients:
        virtual = self.world.env.virtual_ranks if self.virtual_ranks is None else self.virtual_ranks
        if warning := batchnorm.warning(self.model, self.data.order, virtual or self.world.size):
            self.world.say(f"warning: {warning}")
        if virtual:
            return VirtualRanks(self.world, self.model, self.loss, self.data, virtual)
        return Averaged(self.world, self.model, self.loss, self.data, self.ddp)

    def _learn(self, gradients: Gradients, span: Span, parts: Parts, request: StopRequest) -> Cursor:
        """One optimizer step; gives the cursor behind it."""
        beat = self.world.heart.beat
        beat(Phase.FORWARD)
        self.optimizer.zero_grad()
        mean = gradients.learn(parts, lambda: self._word(request))
        beat(Phase.UPDATING)
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()
        cursor = self.data.order.after(span)
        step = Step(
            number=self.data.order.step(cursor),
            generation=self._history.generation,
            cursor=cursor,
            ids=[sample for part in parts for sample in part.ids],
            size=span.size,
        )
        beat(Phase.AGREEING, step=step.number)
        self._tell(self._pulse.send(step, mean))
        return cursor

    def _word(self, request: StopRequest) -> Word:
        history = self._history
        return Word(stop=request.asked, written=history.written, due=self._cadence.overdue, kept=history.kept)

    def _end_epoch(self, epoch: int) -> None:
        self.world.heart.beat(Phase.EVALUATING)
        self._tell(self._pulse.flush())
        metrics = self.on_epoch(epoch) if self.on_epoch else {}
        self._metrics = {name: float(value) for name, value in metrics.items()}
        self._report.epoch(epoch, self._metrics)

    def _save(self, cursor: Cursor) -> None:
        """Begin a snapshot, and a copy in memory, where one is due; while one is being written, as soon as it is.

        An epoch that has the metric which the best one is kept by does not wait: its state is measured here only.
        """
        step, heard, metrics = self.data.order.step(cursor), self._pulse.heard, self._metrics_at(cursor)
        if not self._history.prepared:
            self.world.heart.beat(Phase.SAVING)
            self._history.prepare()
        self._history.advance(written=heard.written)
        due = self._cadence.reached(step, due=heard.due) and not self._history.pending
        due = due or self._cadence.measured(metrics)
        keep = heard.kept and self._kept_cadence is not None and self._kept_cadence.reached(step, due=False)
        if due or keep:
            self.world.heart.beat(Phase.SAVING)
            self._tell(self._pulse.flush())
        if due:
            self._history.begin(cursor, metrics)
            self._cadence.begin(step)
        if self._kept_cadence and keep:
            self._history.keep(cursor, metrics)
            self._kept_cadence.begin(step)
        self._report.snapshot(self._history.committed)

    def _commit(self, cursor: Cursor) -> None:
        """Take a snapshot, and wait for it."""
        self.world.heart.beat(Phase.SAVING)
        self._tell(self._pulse.flush())
        self._history.commit(cursor, self._metrics_at(cursor))
        self._report.snapshot(self._history.committed)

    def _metrics_at(self, cursor: Cursor) -> Mapping[str, float]:
        """Those of the epoch that a cursor ends."""
        return self._metrics if cursor.position == 0 else {}

    def _drain(self, cursor: Cursor) -> None:
        self._commit(cursor)
        self.world.say(f"stopping at step {self.data.order.step(cursor)}, as asked")
        self.world.barrier()  # so that exit code 75 means committed, whichever rank it comes from
        raise Drained

    def _tell(self, step: Step | None) -> None:
        if step is None:
            return
        self._report.step(step)
        if self.on_step:
            self.on_step(step)

    def _tell_start(self, begin: Cursor) -> None:
        ranks = f"{self.world.size} ranks" if self.world.size > 1 else "1 rank"
        steps = self.data.order.step(begin)
        where = f"going on after step {steps}, in epoch {begin.epoch + 1}" if steps else "training"
        if steps > self._history.committed.step:
            where += ", from copies in memory,"
        self._report.begin(steps)
        self.world.say(f"{where} with {ranks} on {self.world.device.type}, {self.data.order.batch} samples a step")
