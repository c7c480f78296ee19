"""The training loop: steps in the data's order, each an average over all ranks' gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.snapshots.state.rank_state import RankState
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.training import batchnorm
from kittrain.rank.training.gradients import AveragedGradients, Gradients, Loss, Parts
from kittrain.rank.training.loop_changes import AtPlace, Evaluation, Round
from kittrain.rank.training.report import Plan
from kittrain.rank.training.session import NO_METRICS, OnStep, Session
from kittrain.rank.training.step_sync import PendingMean
from kittrain.rank.training.survival import Survival
from kittrain.rank.training.virtual_ranks import VirtualRanks
from kittrain.rank.world.data import Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.replica_state import ReplicaState
from kittrain.rank.world.replicas import DDPOptions, has_sharded_modules
from kittrain.system.heartbeat import Phase

OnEpoch = Callable[[int], Mapping[str, float]]
OnEvaluate = Callable[[int], Mapping[str, float]]


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
        accumulate: batches into which each rank's part of a step is divided; their gradients are added up.
        max_grad_norm: gradients are clipped to this norm.
        autocast: dtype of autocast while the loss is computed, such as ``torch.bfloat16``; with ``torch.float16`` the
            loss is scaled by a GradScaler, whose state is saved, too.
        ddp: options of DDP, such as ``DDPOptions(find_unused_parameters=True)``; unused by a lone process.
        on_step: called on every rank for every step, in order, once its loss is known, and before a snapshot that
            includes it is committed.
        on_epoch: called on all ranks after each epoch, with its number from 0 on; returns the epoch's metrics, which
            have to be equal on all ranks.
        evaluate_every: steps between calls of ``on_evaluate``.
        on_evaluate: called on all ranks with the number of steps; returns metrics, which have to be equal on all ranks.

    Raises:
        ValueError: there are no epochs, no steps between snapshots, or options that exclude each other.
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
    accumulate: int = 1
    max_grad_norm: float | None = None
    autocast: torch.dtype | None = None
    ddp: DDPOptions = field(default_factory=DDPOptions)
    on_step: OnStep | None = None
    on_epoch: OnEpoch | None = None
    evaluate_every: int | None = None
    on_evaluate: OnEvaluate | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"{self.epochs} epochs: it needs to be 1 or more")
        self._check_options()
        self._scaler = GradScaler(self.world.device.type) if self.autocast == torch.float16 else None
        model = self.model.to(self.world.device)
        self._state = State(model=model, optimizer=self.optimizer, scheduler=self.scheduler, scaler=self._scaler)
        hooked = "a communication hook has a state of its own on each rank" if self.ddp.comm_hook else ""
        self._survival = Survival(self.world, self._state, why_not=hooked)
        self._session = self._new_session()
        self._evaluated = True  # after the last step, if that was due
        self._metrics = NO_METRICS  # of that evaluation, until a snapshot has them or is not due

    def _new_session(self, brought: Brought | None = None) -> Session:
        """One for each round; the state's own objects stay."""
        self._replicas = ReplicaState(self._state.parameter_names, self.world.print)
        return Session(
            self.world,
            self._state,
            self.data.order,
            Plan(epochs=self.epochs, steps_per_epoch=self.data.order.steps_per_epoch),
            snapshot_every=self.snapshot_every,
            on_step=self.on_step,
            own=RankState(self.world.rank, replicas=self._replicas),
            brought=brought,
        )

    def fit(self) -> None:
        """Train from the newest saved state, or from the start, to the end of the last epoch.

        Afterwards the folder of snapshots holds the model's file and a marker that the run has finished.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken.
            SnapshotError: the snapshots cannot be used, or the trained model cannot be written.
            Fenced: ranks of a newer generation have taken over.
        """
        survival = self._survival
        survival.check()
        while True:
            try:
                self._train()
            except RuntimeError as error:
                if not survival.outlives(error, self._session):
                    raise
            else:
                return
            self._session = self._new_session(self._rejoin())  # not within except: it holds the frames

    def _rejoin(self) -> Brought:
        """Form the next round with the other ranks; returns what this one brings."""
        self._survival.judge()
        brought = self._survival.rejoin(self._session)
        if not self._session.entered or brought.cursor is None:  # as to this round
            return brought
        return replace(brought, asked=self._evaluated, requested=self._metrics or None)

    def _train(self) -> None:
        """Train until the end of the last epoch, or of this round."""
        survival = self._survival
        with self._session as session:
            session.lives_on, session.report.note = survival.possible, survival.note
            begin, order = session.cursor, self.data.order
            session.begin(begin.epoch, f", {order.batch} samples per step")
            session.report_left(survival.take_left())
            gradients = self._gradients()
            self._replicas.apply()
            self.world.heartbeat.beat(Phase.DATA, step=session.steps)
            survival.begin()
            if session.requested or not session.asked:
                self._end_step(session.requested)
            for span, parts in zip(order.spans(begin, self.epochs), gradients.batches(begin, self.epochs), strict=True):
                ids = [sample for part in parts for sample in part.ids]
                if survival.possible:
                    survival.step(session.step(order.after(span), ids=ids, size=span.size, epoch=span.epoch))
                mean = self._train_step(gradients, parts)
                self._evaluated = False
                session.send(order.after(span), mean, ids=ids, size=span.size, epoch=span.epoch)
                self._end_step()
            session.finish(self._metrics, stored=survival.end)

    def _end_step(self, metrics: Mapping[str, float] | None = None) -> None:
        """What follows a step: its evaluation, if one is due, and the snapshot.

        Args:
            metrics: of the evaluation, if that was done before ranks were lost.
        """
        session = self._session
        self._metrics = self._evaluate() if metrics is None else metrics
        self._evaluated = True
        if session.cursor.epoch < self.epochs:
            session.save_or_drain(self._metrics)
            self._metrics = NO_METRICS

    def log(self, **metrics: Tensor | float) -> None:
        """Show metrics in the job's status: rank 0's. Not collective; for ``on_step``, for example."""
        self._session.report.metrics(metrics)

    def _check_options(self) -> None:
        if self.accumulate < 1:
            raise ValueError(f"accumulate={self.accumulate}: it needs to be 1 or more")
        if self.accumulate > 1 and self._virtual:
            raise ValueError("accumulate and virtual_ranks exclude each other: virtual ranks accumulate as it is")
        if self.accumulate > 1 and self.ddp.static_graph:
            raise ValueError("accumulate and static_graph exclude each other: torch's DDP fails in the first step")
        if (self.evaluate_every is None) != (self.on_evaluate is None) or self.evaluate_every == 0:
            raise ValueError("evaluate_every and on_evaluate belong together, and it needs to be 1 or more")
        if self.autocast == torch.float16 and (self._virtual or has_sharded_modules(self.model)):
            raise ValueError("float16 excludes virtual_ranks and sharded models, whose overflows differ: use bfloat16")

    @property
    def _virtual(self) -> int:
        return self.world.env.job.virtual_ranks if self.virtual_ranks is None else self.virtual_ranks

    def _gradients(self) -> Gradients:
        shares = self._virtual or self.world.size * self.accumulate
        if warning := batchnorm.warning(self.model, self.data.order, shares):
            self.world.print(f"warning: {warning}")
        loss = self.loss if self.autocast is None else self._autocast_loss
        if self._virtual:
            return VirtualRanks(self.world, self.model, loss, self.data, self._virtual)
        scale = self._scaler.scale if self._scaler else None
        return AveragedGradients(
            self.world, self.model, loss, self.data, self.ddp, accumulate=self.accumulate, scale=scale
        )

    def _autocast_loss(self, model: nn.Module, batch: Any) -> Tensor:
        with torch.autocast(self.world.device.type, dtype=self.autocast):
            return self.loss(model, batch)

    def _train_step(self, gradients: Gradients, parts: Parts) -> PendingMean:
        """One optimizer step; returns the mean of the ranks' messages."""
        beat = self.world.heartbeat.beat
        beat(Phase.FORWARD)
        self.optimizer.zero_grad()
        mean = gradients.backward(parts, self._session.message)
        beat(Phase.UPDATING)
        self._update()
        if self.scheduler:
            self.scheduler.step()
        self._survival.updating = False
        return mean

    def _update(self) -> None:
        """Clip the gradients and change the parameters; with a scaler, not if gradients have overflown."""
        self._survival.updating = self._scaler is not None
        if self._scaler:
            self._scaler.unscale_(self.optimizer)
        if self.max_grad_norm is not None:  # of a sharded model, this is collective
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self._survival.update()
        if self._scaler:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        else:
            self.optimizer.step()

    def _evaluate(self) -> Mapping[str, float]:
        """The metrics that are due after a step: of the epoch that it ends, and of its own."""
        session = self._session
        ended = session.cursor.position == 0
        due = self.evaluate_every is not None and session.steps % self.evaluate_every == 0
        if not ended and not due:
            return NO_METRICS
        self.world.heartbeat.beat(Phase.EVALUATING)
        session.flush()
        self._survival.evaluates(self._evaluation())
        metrics = self._evaluated_at(session.cursor.epoch - 1 if ended else None, due=due)
        self._survival.evaluates(None)
        return metrics

    def _evaluation(self) -> Evaluation | None:
        """What the script may change while it evaluates, if it can be done anew."""
        if not self._survival.possible:
            return None
        modules, optimizers = self._state.modules, list(self._state.optimizers.values())
        scalers, schedulers = [one for one in [self._scaler] if one], [one for one in [self.scheduler] if one]
        before = AtPlace(optimizers, scalers, schedulers)
        return Evaluation(modules, before, Round(modules, optimizers, scalers))

    def _evaluated_at(self, epoch: int | None, *, due: bool) -> Mapping[str, float]:
        """The metrics of a step that ends an epoch, or None, and after which ``on_evaluate`` is due."""
        session = self._session
        metrics: dict[str, float] = {}
        if due and self.on_evaluate:
            metrics |= {name: float(value) for name, value in self.on_evaluate(session.steps).items()}
            session.report.evaluation(session.steps, metrics)
        if epoch is not None:
            metrics |= self._epoch_metrics(epoch)
            session.report.epoch(epoch, metrics)
        return metrics

    def _epoch_metrics(self, epoch: int) -> Mapping[str, float]:
        metrics = self.on_epoch(epoch) if self.on_epoch else {}
        return {name: float(value) for name, value in metrics.items()}
