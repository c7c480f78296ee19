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

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, Self

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer
from torch.optim.swa_utils import AveragedModel

from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.training.loader_pass import OnResize
from kittrain.rank.training.run import Run
from kittrain.rank.training.session import OnStep, Session
from kittrain.rank.training.snapshot_places import SnapshotPlaces
from kittrain.rank.training.step_sync import Step
from kittrain.rank.training.survival import Survival
from kittrain.rank.world.data import Data
from kittrain.rank.world.distributed import World

SEEN: Final = (LRScheduler, GradScaler)  # whose changes are, besides modules' and optimizers'


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
        self._schedulers = [one for one in objects.values() if isinstance(one, LRScheduler)]
        self._marks: list[int] = []
        self._tail_counts = False  # the loop moves a scheduler between ``run.step()`` and the next place
        self._end: BeforeEnd | None = None  # of an epoch, where the loop is in what it does there
        self._modes: Sequence[tuple[nn.Module, bool]] = ()  # that it trains in
        self.asked = True

    def watch(self, hooks: ExitStack) -> None:
        """See from now on when an optimizer changes the state."""
        if self.possible:
            for one in self._state.optimizers.values():
                hooks.callback(one.register_step_pre_hook(lambda *_: self.update()).remove)

    @property
    def undoes(self) -> bool:
        """Whether the loop is at the end of an epoch, and what it does there is going to be done anew."""
        return self._end is not None

    def settled(self) -> None:
        """The state is one that a loop may go on from: training begins, or an epoch has ended with all of its work."""
        self.updating, self.asked, self._end = False, True, None
        self._marks = self._now()

    def stepped(self) -> None:
        """A step has ended, but not yet what the loop does after it."""
        self.updating, self.asked, self._end = False, False, None
        self._marks = self._now()

    def ask(self, *, tail: bool) -> None:
        """The loop asks what comes next.

        Args:
            tail: nothing more is left of an epoch's batches: the loop does what it does at the end of one.

        Raises:
            RoundOverError: nothing does.
        """
        if not self.asked:
            self._tail_counts = self._tail_counts or self._marks != self._now()
            self.asked, self._marks = True, self._now()
            if tail or not self._modes:
                self._modes = [(one, one.training) for module in self._state.modules for one in module.modules()]
        if tail and self._end is None:
            self._end = BeforeEnd(self._schedulers, self._state.optimizers.values())
        self.step(None)

    def judge(self) -> None:
        """The round is over: undo what will be done anew. If the state has changed otherwise, it cannot be used."""
        if self._end is not None and not self.updating:
            self._end.restore()
            self._restore_buffers()
        self._end = None
        for module, mode in self._modes:
            module.training = mode
        self._modes = ()
        unfinished = self._tail_counts and not self.asked
        self.updating = self.updating or unfinished or self._marks != self._now()

    def _now(self) -> list[int]:
        return [one.last_epoch for one in self._schedulers]


class BeforeEnd:
    """What the end of an epoch changes, as it was before: schedulers, and the options of optimizers' parameter groups.

    Args:
        schedulers: that the run has.
        optimizers: that the run has.
    """

    def __init__(self, schedulers: Iterable[LRScheduler], optimizers: Iterable[Optimizer]) -> None:
        self._schedulers = [(one, copy.deepcopy(one.state_dict())) for one in schedulers]
        groups = [group for one in optimizers for group in one.param_groups]
        self._groups = [(group, copy.deepcopy(_options(group))) for group in groups]

    def restore(self) -> None:
        """Undo what was changed since."""
        for scheduler, state in self._schedulers:
            scheduler.load_state_dict(copy.deepcopy(state))
        for group, options in self._groups:
            for name, value in options.items():
                if isinstance(now := group.get(name), Tensor):  # what a compiled optimizer reads
                    now.copy_(value)
                else:
                    group[name] = copy.copy(value)


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
        asked, requested = self.survival.asked, None if self.survival.undoes else self._places.requested
        self.survival.judge()
        brought = self.survival.rejoin(self._session, self._cut_short())
        for one in self.state.parameter_names():
            one.grad = None  # the step is taken anew
        if not self._session.entered or brought.cursor is None:  # as to this round
            return brought
        return replace(brought, loop=[self._epoch, self._epoch_start], asked=asked, requested=requested)

    def _cut_short(self) -> Step | None:
        """The step that was not finished here; if another rank has finished it, it counts."""
        if not self._session.entered or not (batches := self._taken.taken):
            return None
        ids, size = [sample for one in batches for sample in one.ids], sum(one.span.size for one in batches)
        return self._session.step(self._taken.cursor, ids=ids, size=size, epoch=self._epoch)

    def _loop_begun(self) -> None:
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


def _options(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """A parameter group without its parameters."""
    return {name: value for name, value in group.items() if name not in {"params", "param_names"}}


def _why_not(run: LiveRun, objects: Mapping[str, Any]) -> str:
    """Why a loop with these objects cannot go on in its process; empty if it can."""
    if run.separate:
        return "the run has objects of each rank's own, such as loaders or generators"
    for name, one in objects.items():
        if isinstance(one, AveragedModel) or (name in run.state.others and not isinstance(one, SEEN)):
            return f"it cannot see when {name} changes"
    return ""
