"""The training loop: steps in the data's order, each an average over all ranks' gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kittrain.snapshots.state import State
from kittrain.system.heartbeat import Phase
from kittrain.training import batchnorm
from kittrain.training.gradients import AveragedGradients, Gradients, Loss, Parts
from kittrain.training.report import Plan
from kittrain.training.session import OnStep, Session
from kittrain.training.step_sync import PendingMean
from kittrain.training.virtual_ranks import VirtualRanks
from kittrain.world.data import Data
from kittrain.world.distributed import World
from kittrain.world.replicas import DDPOptions

OnEpoch = Callable[[int], Mapping[str, float]]


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
        if self.epochs < 1:
            raise ValueError(f"{self.epochs} epochs: it needs to be 1 or more")
        state = State(model=self.model.to(self.world.device), optimizer=self.optimizer, scheduler=self.scheduler)
        self._session = Session(
            self.world,
            state,
            self.data.order,
            Plan(epochs=self.epochs, steps_per_epoch=self.data.order.steps_per_epoch),
            snapshot_every=self.snapshot_every,
            on_step=self.on_step,
        )

    def fit(self) -> None:
        """Train from the newest saved state, or from the start, to the end of the last epoch.

        Afterwards the folder of snapshots holds the model's file and a marker that the run has finished.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken.
            SnapshotError: the snapshots cannot be used, or the trained model cannot be written.
            Fenced: ranks of a newer generation have taken over.
        """
        metrics: Mapping[str, float] = {}
        with self._session as session:
            begin, order = session.cursor, self.data.order
            session.begin(begin.epoch, f", {order.batch} samples per step")
            gradients = self._gradients()
            self.world.heartbeat.beat(Phase.DATA, step=session.steps)
            for span, parts in zip(order.spans(begin, self.epochs), gradients.batches(begin, self.epochs), strict=True):
                mean = self._train_step(gradients, parts)
                ids = [sample for part in parts for sample in part.ids]
                session.send(order.after(span), mean, ids=ids, size=span.size, epoch=span.epoch)
                ended = session.cursor.position == 0
                metrics = self._end_epoch(span.epoch) if ended else {}
                if session.cursor.epoch == self.epochs:
                    break
                session.save_or_drain(metrics)
            session.finish(metrics)

    def _gradients(self) -> Gradients:
        virtual = self.world.env.virtual_ranks if self.virtual_ranks is None else self.virtual_ranks
        if warning := batchnorm.warning(self.model, self.data.order, virtual or self.world.size):
            self.world.print(f"warning: {warning}")
        if virtual:
            return VirtualRanks(self.world, self.model, self.loss, self.data, virtual)
        return AveragedGradients(self.world, self.model, self.loss, self.data, self.ddp)

    def _train_step(self, gradients: Gradients, parts: Parts) -> PendingMean:
        """One optimizer step; returns the mean of the ranks' messages."""
        beat = self.world.heartbeat.beat
        beat(Phase.FORWARD)
        self.optimizer.zero_grad()
        mean = gradients.backward(parts, self._session.message)
        beat(Phase.UPDATING)
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()
        return mean

    def _end_epoch(self, epoch: int) -> Mapping[str, float]:
        self.world.heartbeat.beat(Phase.EVALUATING)
        self._session.flush()
        metrics = self.on_epoch(epoch) if self.on_epoch else {}
        metrics = {name: float(value) for name, value in metrics.items()}
        self._session.report.epoch(epoch, metrics)
        return metrics
