"""A run whose training loop is the script's own: exact resume, snapshots, drain and progress in a few lines.

with join(seed=1) as world, Run(world, model=model, optimizer=optimizer) as run:
    for epoch in run.epochs(3):
        for inputs, targets in run.batches(loader):
            loss = ...
            run.step(loss)

Why: decision 37.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.snapshots.state.rank_state import RankState
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.training.loader_pass import LoaderPass, OnResize
from kittrain.rank.training.loaders import Loaders
from kittrain.rank.training.own_objects import OwnObjects, is_shared
from kittrain.rank.training.report import Plan
from kittrain.rank.training.session import OnStep, Session
from kittrain.rank.training.snapshot_places import SnapshotPlaces
from kittrain.rank.training.taken import Taken
from kittrain.rank.training.taken_ahead import CARRIED, BackwardPasses
from kittrain.rank.world import rng
from kittrain.rank.world.data import Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.replica_state import ReplicaState
from kittrain.rank.world.replicas import refuse_tensor_parallelism
from kittrain.system.heartbeat import Phase


class Run:
    """Context manager around a training loop; entering it resumes from the newest saved state. Collective.

    The loop takes its epochs or steps and its batches from the run, and calls ``step`` after each optimizer step.
    Leaving the context without an error ends the run: the last snapshot, ``model.pt`` and a marker are written.

    Args:
        world: from ``join``.
        snapshot_every: steps between snapshots, instead of the environment's.
        on_step: called on every rank for every step, in order, once its loss is known.
        objects: by name, what training changes: modules, wrapped or not; optimizers; anything with ``state_dict`` and
            ``load_state_dict``, such as schedulers, a GradScaler or moving averages, equal on all ranks. Loaders and
            samplers with a state and ``torch.Generator``s may differ between ranks. ``Data`` is the data set if the
            batches are taken from it. None is ignored. The module named ``model`` becomes ``model.pt``.

    Attributes:
        steps_done: optimizer steps, including those before a restart.

    Raises:
        ValueError: there is no module, a name is reserved, or ``Data`` is given with tensor parallelism.
        TypeError: an object has no state.
    """

    _brought: Brought | None = None  # from a round that this process has outlived: see ``live_run``

    def __init__(
        self, world: World, *, snapshot_every: int | None = None, on_step: OnStep | None = None, **objects: Any
    ) -> None:
        data = [one for one in objects.values() if isinstance(one, Data)]
        if len(data) > 1:
            raise ValueError("a run has one Data, whose order the snapshots refer to; pass other loaders to batches()")
        self._own_objects = OwnObjects(objects)
        self._world = world
        self._taken = Taken(data[0] if data else None, world, self._asked_for_data, self._begun)
        self._plan = Plan(refresh=self._estimate)
        state = State(**{name: one for name, one in objects.items() if is_shared(one)})
        self._replicas = ReplicaState(state.parameter_names, world.print)
        self._state = state
        self._backward = BackwardPasses(state.parameter_names, state.optimizers.values())
        self._own = RankState(world.rank, self._position, replicas=self._replicas, separate_streams=False)
        if data:
            refuse_tensor_parallelism(state.model)
        self._session = Session(
            world,
            state,
            self._taken.order,
            self._plan,
            snapshot_every=snapshot_every,
            on_step=on_step,
            own=self._own,
            brought=self._brought,
        )
        self._loaders = Loaders(world, self._restore_late, self._asked_for_batch, self._begun)
        self._epoch = self._epoch_start = 0  # and the step that it started after
        self._in_epochs = self._in_steps = self._entered = False
        self._carried = False  # whether the log says that gradients are
        self._places = SnapshotPlaces(self._session)
        self._metrics: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._session.__enter__()
        self._tell_survivors()
        self._entered = True
        self._taken.cursor = self._session.cursor
        self._epoch = self._session.cursor.epoch
        if position := self._own.restored:
            self._epoch, self._epoch_start = position["epoch"], position["epoch_start"]
            others = [one["loaders"] for one in self._own.others]
            self._loaders.restore(position["loaders"], others, ranks=self._own.ranks)
            self._own_objects.restore(position["objects"])
        self._replicas.apply()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        self._backward.stop()
        if error is not None:
            self._session.__exit__(kind, error, traceback)
            return
        with ExitStack() as stack:
            stack.push(self._session)
            self._places.finish()

    def _tell_survivors(self) -> None:
        if self._world.env.job.policy.survivors == "live":
            why = "policy.survivors: live is for Training.fit(), and for loops in run_rounds()"
            self._session.report.note = f"all ranks are restarted if one is lost: {why}"
            self._world.print(f"note: {self._session.report.note}")

    @property
    def steps_done(self) -> int:
        """See the class."""
        return self._session.steps

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of ``count``, from 0 on; the first one may be resumed within it.

        What the script does after an epoch's batches is done anew if the run is interrupted there.
        """
        self._plan.epochs, self._in_epochs = count, True
        if self._taken.known:
            self._plan.steps_per_epoch = self._taken.order.steps_per_epoch
        self._begin_loop(self._epoch if self._epoch < count else None)
        try:
            for epoch in range(self._epoch, count):
                yield epoch
                self._end_epoch(epoch)
                self._places.take(last=epoch == count - 1)
        finally:
            self._in_epochs = False

    def steps(self, total: int) -> Iterator[int]:
        """The steps that are left of ``total``, from 0 on: one call of ``step`` for each.

        Raises:
            RuntimeError: ``step`` was not called.
        """
        self._plan.total_steps, self._in_steps = total, True
        self._begin_loop(None)
        try:
            while (done := self.steps_done) < total:
                self._world.heartbeat.beat(Phase.COMPUTING)
                yield done
                if self.steps_done == done:
                    raise RuntimeError("the loop over Run.steps() went on without a call of Run.step()")
                self._places.take(last=self.steps_done >= total)
        finally:
            self._in_steps = False

    def batches(self, loader: Iterable[Any] | Data, *, resize: OnResize = "exact") -> Iterator[Any]:
        """The loader's batches, from the restored position on: of this epoch, or endless if the loop is over steps.

        Of ``Data`` they are ``Batch``es: this rank's samples, with the factor for their mean loss.

        Args:
            loader: of this rank's batches, or the ``Data`` of the run.
            resize: what to do within a pass if the number of ranks has changed and it is not known which samples are
                left: ``exact`` is an error, ``share`` continues after about the same share of the pass.

        Raises:
            PositionError: the pass cannot be continued as requested.
        """
        epoch = self._epoch if self._in_epochs else None
        if isinstance(loader, Data):
            self._restore_late()
            return self._watched(self._taken.batches(loader, epoch))
        return self._watched(self._loaders.batches(loader, epoch, resize))

    def enumerate(self, loader: Iterable[Any] | Data, *, resize: OnResize = "exact") -> Iterator[tuple[int, Any]]:
        """The loader's batches, each with its number in the pass, from 0 on, or from the restored position on.

        For loops that count: a step every k batches, or at the last one. Its number is the loader's length less one.
        """
        for batch in self.batches(loader, resize=resize):
            yield self._taken.number_of(batch) if isinstance(loader, Data) else self._loaders.number(loader), batch

    def step(self, loss: Tensor | float | None = None, *, samples: int | None = None) -> None:
        """An optimizer step has ended: exchange and report.

        Call it before the next batch is taken. A snapshot that is due is taken when the loop asks for that batch, or
        for the next step or epoch, so that it has what the loop does until then.

        Args:
            loss: of this rank, for reports; the mean over the ranks is reported.
            samples: number of this rank's samples in the step, for reports.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken. Raised where that is taken.
            PositionError: the pass that the snapshot was taken in was not continued.
            TakenAheadError: the loop takes batches before the step that precedes them.
            RuntimeError: the run was not entered.
        """
        self._check_entered()
        mean = self._session.average(loss, samples or 0)
        self._own.generators = None
        backward = self._backward.take()
        ids, size = self._taken.end_step(backward)
        self._loaders.end_step(backward)
        if self._taken.decided and self._loaders.decided:
            self._backward.stop()
        if self._in_epochs and not self._taken.known:
            self._loaders.note_untracked()
        self._session.send(self._taken.cursor, mean, ids=ids, size=size, epoch=self._epoch, has_loss=loss is not None)
        self._places.step()
        if not self._in_steps and not self._awaited:
            self._places.take()  # the batches come from elsewhere: nothing will be asked for

    def log(self, **metrics: Tensor | float) -> None:
        """Show metrics in the job's status: rank 0's. Not collective."""
        self._metrics |= metrics
        self._session.report.metrics(self._metrics)

    def save(self, **metrics: float) -> None:
        """Take a snapshot of the state that the loop has when it asks for its next batch, step or epoch, or ends.

        Where nothing will be asked for, it is taken now.

        Args:
            metrics: of this state, equal on all ranks; ``snapshots.keepBest`` may name one.
        """
        self._check_entered()
        self.log(**metrics)
        self._places.request(metrics)
        in_epoch = self._in_epochs and self.steps_done > self._epoch_start
        if not in_epoch and not self._in_steps and not self._awaited:
            self._places.take()

    @property
    def _awaited(self) -> bool:
        """Whether the loop is going to ask for another batch to train on."""
        return self._loaders.awaited or self._taken.awaited

    def _begun(self, between: bool) -> None:  # noqa: FBT001  callback
        self._backward.start(between=between)

    def _asked_for_batch(self, one: LoaderPass) -> None:
        if one.current and not self._loaders.pending:
            self._check_gradients()
            self._places.take(tail=self._in_epochs and one.complete)

    def _asked_for_data(self) -> None:
        if not self._taken.pending:
            self._check_gradients()
            self._places.take(tail=self._taken.cursor.position == 0 and self._in_epochs)

    def _check_gradients(self) -> None:
        if not self._carried and self._backward.carried:
            self._carried = True
            self._world.print(CARRIED)

    def _watched(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches, with heartbeats."""
        self._check_entered()
        beat = self._world.heartbeat.beat
        beat(Phase.DATA)
        for batch in batches:
            beat(Phase.COMPUTING)
            yield batch
            beat(Phase.DATA)
        beat(Phase.EVALUATING)

    def _begin_loop(self, epoch: int | None) -> None:
        self._check_entered()
        self._session.begin(epoch)
        self._restore_late()
        self._world.heartbeat.beat(Phase.DATA, step=self.steps_done)
        self._loop_begun()

    def _loop_begun(self) -> None:
        """For ``live_run``."""

    def _end_epoch(self, epoch: int) -> None:
        self._taken.end_epoch(epoch)
        try:
            self._session.flush()
            self._session.report.epoch(epoch, {name: float(value) for name, value in self._metrics.items()})
        finally:  # if ranks are lost meanwhile, the loop has still done all of the epoch's work
            self._epoch, self._epoch_start = epoch + 1, self.steps_done
            self._own.generators = None
            self._places.change()
            self._loaders.end_epoch()

    def _estimate(self) -> None:
        """How long the run is, for reports."""
        if self._in_epochs and (steps := self._loaders.steps_of_epoch(self.steps_done - self._epoch_start)):
            self._plan.estimate(self._epoch_start, self._epoch, steps)

    def _position(self) -> Mapping[str, Any]:
        return {
            "epoch": self._epoch,
            "epoch_start": self._epoch_start,
            "loaders": self._loaders.positions(),
            "objects": self._own_objects.capture(),
        }

    def _restore_late(self) -> None:
        """Undo what was drawn since the state was restored, and set the DDP modules that were made since."""
        self._replicas.apply()
        if self._own.generators:
            rng.restore(self._own.generators)
            self._own_objects.restore_generators()

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("enter the run first: with Run(...) as run:")
