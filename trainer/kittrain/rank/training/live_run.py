"""A loop of the script's own that goes on in the same process when other ranks are lost: a ``Run`` for each round.

def train(run):
    parallel = DistributedDataParallel(model)
    for epoch in run.epochs(3):
        for batch in run.batches(data):
            ...
            run.step(loss)

run_rounds(world, train, model=model, optimizer=optimizer, data=data)

A round that loses ranks ends in the loop by an error. What the loop has made itself, such as DDP's module, is dropped
then, and the function is called again once the next round is formed, with a run that goes on after the last step.

Why: decision 60.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, Self

from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.training.loader_pass import OnResize
from kittrain.rank.training.loop_changes import AtPlace, Evaluation, Moves, Round, Untouched
from kittrain.rank.training.run import Run
from kittrain.rank.training.session import OnStep, Session
from kittrain.rank.training.snapshot_places import SnapshotPlaces
from kittrain.rank.training.step_hooks import before_step
from kittrain.rank.training.step_sync import Step
from kittrain.rank.training.survival import Survival
from kittrain.rank.world.data import Data
from kittrain.rank.world.distributed import World

SEEN: Final = (LRScheduler, GradScaler)  # whose changes are, besides modules' and optimizers'
AFTER_STEP: Final = (
    "ranks were lost in what the loop does after step {} and before it asks for more, such as an evaluation: "
    "that is not done again"
)


def run_rounds(
    world: World,
    train: Callable[[Run], None],
    *,
    snapshot_every: int | None = None,
    on_step: OnStep | None = None,
    **objects: Any,
) -> None:
    """Train by a loop of the script's own, in each round that this process lives through. Collective.

    Without ``policy.survivors: live`` the function is called once, as ``with Run(...) as run: train(run)`` would.

    Args:
        world: from ``join``.
        train: the loop, with a ``Run``; it makes what belongs to a group of ranks, such as DDP's modules. It is called
            again after a fault, with the same objects.
        snapshot_every: as of ``Run``.
        on_step: as of ``Run``.
        objects: as of ``Run``.

    Raises:
        ValueError, TypeError: as ``Run``.
        CannotOutliveError: the script holds what belonged to the last round; its agent starts another process.
    """
    brought: Brought | None = None
    survival: RunSurvival | None = None
    with ExitStack() as hooks:
        while True:
            run = LiveRun(world, survival, brought, snapshot_every=snapshot_every, on_step=on_step, objects=objects)
            if survival is None:
                survival = run.survival
                survival.check()
                survival.watch(hooks)
            survival.enter()
            try:
                with run:
                    train(run)
            except RuntimeError as error:
                if not run.outlives(error):
                    raise
            else:
                return
            brought = run.rejoin()  # not within except: it holds the frames


class RunSurvival(Survival):
    """Knows also whether the state is that of a place where a resumed loop would go on.

    Such a place is where the loop asks what comes next. What it does between ``run.step()`` and that is its own: a rank
    that has not done it yet takes the state of one that has. What it does at the end of an epoch is undone, and done
    anew.

    Args:
        world: of this rank.
        run: of its first round.
        objects: that the run was given, by name.
    """

    def __init__(self, world: World, run: LiveRun, objects: Mapping[str, Any]) -> None:
        super().__init__(world, run.state, why_not=_why_not(run, objects))
        self._optimizers = list(run.state.optimizers.values())
        self._schedulers = [one for one in objects.values() if isinstance(one, LRScheduler)]
        self._scalers = [one for one in objects.values() if isinstance(one, GradScaler)]
        self._moves = Moves(self._optimizers, self._schedulers)
        self._places: list[Any] = []  # of what moves, at the last place or step
        self._usual: list[bool] | None = None  # what moves between ``run.step()`` and the next place; None: not known
        self._kept: AtPlace | None = None  # since the last place
        self._round: Round | None = None
        self._untouched: Untouched | None = None
        self._looked = False
        self.asked = True

    def watch(self, hooks: ExitStack) -> None:
        """See from now on when an optimizer changes the state."""
        if self.possible:
            for one in self._optimizers:
                hooks.callback(before_step(one, lambda *_: self.update()).remove)

    def enter(self) -> None:
        """A round begins: the script's function is called."""
        if self.possible:
            self._round = Round(self._state.modules, self._optimizers, self._scalers)

    def begin(self) -> None:
        """See the base class."""
        super().begin()
        self._looked = False
        if self.possible:
            self._untouched = Untouched(self._state.modules, self._optimizers)

    def settled(self) -> None:
        """The state is one that a loop may go on from: training begins, or an epoch has ended with all of its work."""
        self._arrive()
        self.asked, self._kept = True, AtPlace(self._optimizers, self._scalers)

    def stepped(self) -> None:
        """A step has ended, but not yet what the loop does after it."""
        self._arrive()
        self.asked = False

    def ask(self, *, tail: bool) -> None:
        """The loop asks what comes next.

        Args:
            tail: nothing more is left of an epoch's batches: the loop does what it does at the end of one.

        Raises:
            RoundOverError: nothing does.
        """
        if not self.asked:
            self._end_of_tail()
            if not self._looked:
                self._look()
            if tail and self._round:
                self._round.keep_modes()
            if not tail:
                self._kept = AtPlace(self._optimizers, self._scalers)
        if tail and self.possible and not self.evaluating:
            before = AtPlace(self._optimizers, self._scalers, self._schedulers)
            self.evaluates(Evaluation(self._state.modules, before))
        self.step(None)

    def judge(self) -> None:
        """See the base class."""
        if not self.updating and not self.evaluating:
            self.updating = self._changed()
            if self.asked and self._kept:
                self._kept.restore()
        self._kept = None
        super().judge()
        if self._round:
            self._round.restore()
        if self._untouched and (name := self._untouched.changed()):
            self._spoiled(f"no optimizer holds {name}, and the script has changed it")

    def _arrive(self) -> None:
        self.updating, self._kept = False, None
        self.evaluates(None)
        self._places = self._moves.now()

    def _end_of_tail(self) -> None:
        """What the loop does after a step is done."""
        before, self._places, self.asked = self._places, self._moves.now(), True
        if self._usual is None:
            self._usual = [False] * len(before)
        if before != self._places:
            compared = zip(self._usual, before, self._places, strict=True)
            self._usual = [usual or one != other for usual, one, other in compared]

    def _look(self) -> None:
        """After a step: whether the loop changes what it cannot be seen to."""
        self._looked = True
        if self._untouched and (name := self._untouched.changed()):
            self._untouched = None
            self.refuse(f"it cannot see when {name} changes, which no optimizer holds")

    def _changed(self) -> bool:
        """Whether something has moved that would move again, or has not, and would not any more."""
        moved = [one != other for one, other in zip(self._places, self._moves.now(), strict=True)]
        if self.asked:
            return any(self._moves.scheduled(moved))
        return self._usual is None or any(usual and not one for one, usual in zip(moved, self._usual, strict=True))


class LiveRun(Run):
    """The run of one round.

    Args:
        world: of this rank.
        survival: of the script's loop; None: this is its first round.
        brought: from the last round; None: this process is new.
        objects: as of ``Run``.
        options: as of ``Run``.
    """

    def __init__(
        self,
        world: World,
        survival: RunSurvival | None,
        brought: Brought | None,
        *,
        objects: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._brought = brought
        super().__init__(world, **options, **objects)
        self.state = self._state
        self.separate = self._own_objects.any
        self.survival = survival or RunSurvival(world, self, objects)
        self._places = LivePlaces(self._session, self.survival)

    def __enter__(self) -> Self:
        super().__enter__()
        if self._session.loop:
            self._epoch, self._epoch_start = self._session.loop
        if (requested := self._session.requested) is not None:
            self._places.request(requested)
        if self._session.after_step:
            self._world.print(f"note: {AFTER_STEP.format(self._session.steps)}")
        self.survival.settled()
        self._tell_session()
        return self

    def batches(self, loader: Iterable[Any] | Data, *, resize: OnResize = "exact") -> Iterator[Any]:
        """See the base class."""
        if not isinstance(loader, Data):
            self.survival.refuse("the loop takes batches from a loader, and not from kittrain.Data")
            self._tell_session()
        return super().batches(loader, resize=resize)

    def outlives(self, error: RuntimeError) -> bool:
        """Whether the error came because the round is over, and this process goes on."""
        return self.survival.outlives(error, self._session)

    def rejoin(self) -> Brought:
        """Form the next round with the other ranks; returns what this one brings."""
        asked, requested = self.survival.asked, None if self.survival.evaluating else self._places.requested
        self.survival.judge()
        brought = self.survival.rejoin(self._session, self._cut_short())
        for one in self.state.parameter_names():
            one.grad = None  # the step is taken anew
        if not self._session.entered or brought.cursor is None:  # as to this round
            return brought
        return replace(brought, loop=[self._epoch, self._epoch_start], asked=asked, requested=requested)

    def _asked_for_data(self) -> None:
        if self._taken.pending and self._world.rounds:  # a loop that goes on after an error finds out here
            self._world.rounds.check()
        super()._asked_for_data()

    def _cut_short(self) -> Step | None:
        """The step that was not finished here; if another rank has finished it, it counts."""
        if not self._session.entered or not (batches := self._taken.taken):
            return None
        ids, size = [sample for one in batches for sample in one.ids], sum(one.span.size for one in batches)
        return self._session.step(self._taken.cursor, ids=ids, size=size, epoch=self._epoch)

    def _loop_begun(self) -> None:
        self._own.go_on_seeded(self._session.steps)
        self._session.report_left(self.survival.take_left())
        self.survival.settled()
        self.survival.begin()

    def _tell_session(self) -> None:
        self._session.lives_on, self._session.report.note = self.survival.possible, self.survival.note

    def _tell_survivors(self) -> None:
        """Nothing: ``Survival`` does."""


class LivePlaces(SnapshotPlaces):
    """The places where a resumed loop would go on, which survivors do as well."""

    def __init__(self, session: Session, survival: RunSurvival) -> None:
        super().__init__(session)
        self._survival = survival

    def step(self) -> None:
        """See the base class."""
        super().step()
        self._survival.stepped()

    def change(self) -> None:
        """See the base class."""
        super().change()
        self._survival.settled()

    def take(self, *, tail: bool = False, last: bool = False) -> None:
        """See the base class."""
        self._survival.ask(tail=tail)
        super().take(tail=tail, last=last)

    def stored(self) -> None:
        """See the base class."""
        self._survival.end()


def _why_not(run: LiveRun, objects: Mapping[str, Any]) -> str:
    """Why a loop with these objects cannot go on in its process; empty if it can."""
    if run.separate:
        return "the run has objects of each rank's own, such as loaders or generators"
    for name, one in objects.items():
        if isinstance(one, AveragedModel) or (name in run.state.others and not isinstance(one, SEEN)):
            return f"it cannot see when {name} changes"
    return ""
