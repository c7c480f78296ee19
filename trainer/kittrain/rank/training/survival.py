"""Goes on in the same process when other ranks are lost: what a loop takes from one round to the next.

The loop is left by the error of a collective, and entered again with the same model and optimizer. So nothing of this
is in a step, but a mark around the optimizer's, and copies of the buffers that a forward pass may change.

Why: decision 60.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Final

import torch

from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.training.loop_changes import Evaluation
from kittrain.rank.training.session import Session
from kittrain.rank.training.step_sync import Step
from kittrain.rank.world.distributed import World
from kittrain.rank.world.replica_state import living
from kittrain.rank.world.rounds import CannotOutliveError, RoundLeftError, obstacle
from kittrain.torch_private.fsdp import CannotRenewError, ReplicatedShards

SETTLE_SECONDS: Final = 1.0  # for a snapshot that this rank publishes


class Survival:
    """Whether and how this rank outlives its round.

    Args:
        world: of this rank.
        state: that is trained.
        why_not: why this loop cannot do that; empty if it can.

    Attributes:
        updating: whether an optimizer step is being applied; if it is cut short, the state cannot be used.
        note: why this rank cannot outlive its round although it should, for the job's status.
    """

    def __init__(self, world: World, state: State, *, why_not: str = "") -> None:
        self._world = world
        self._state = state
        self._shards: ReplicatedShards | None = None  # of a sharded model
        self._why_not = why_not
        self._within = self._possible = False
        self._before: list[torch.Tensor] = []  # the buffers at the start of a step
        self._current: Step | None = None
        self._left: list[Step] = []
        self._evaluation: Evaluation | None = None
        self.updating = False
        self.note = ""

    @property
    def possible(self) -> bool:
        """Whether this rank outlives its round if the loss of others ends it."""
        return self._possible

    def check(self) -> None:
        """Look once, before the loop, whether this rank could outlive its round; says why not."""
        world = self._world
        if world.rounds is None:
            if world.env.job.policy.survivors == "live" and world.env.round_pipe is not None:
                self._refuse("it needs kittrain.join(), and gloo on CPUs")
            return
        if why := self._obstacle():
            self._refuse(why)
        self._possible = not why

    def begin(self) -> None:
        """Steps are taken from now on."""
        self._set(within=self._possible)

    def end(self) -> None:
        """There are no more steps."""
        self._set(within=False)

    def update(self) -> None:
        """An optimizer step begins: with all gradients, of which each rank of a replica has those of its part.

        If other ranks of the replica could not have them, none takes the step.
        """
        if self._shards and self._within and not self.updating:
            self._shards.wait_for_replica()
        self.updating = True

    @property
    def evaluating(self) -> bool:
        """Whether the script does what will be done anew if ranks are lost in it, such as an evaluation."""
        return self._evaluation is not None

    def evaluates(self, evaluation: Evaluation | None) -> None:
        """The script begins what will be done anew if ranks are lost in it, or has done it: None.

        Who computes for long then, and does not come to the others, is replaced.
        """
        self._evaluation = evaluation if self._possible else None
        if self._world.rounds:
            self._world.rounds.evaluates = self.evaluating
        if self.evaluating:
            self._keep_buffers()

    def judge(self) -> None:
        """The round is over: undo what will be done anew. If the state has changed otherwise, it cannot be used."""
        if (evaluation := self._evaluation) is None:
            return
        self.evaluates(None)
        if not self.updating:
            self._restore_buffers()
        if name := evaluation.undo():
            self._spoiled(f"{name} is not what was trained: the script was evaluating other values")

    def step(self, step: Step | None) -> None:
        """A step begins; ``step`` is what it will be once it has ended; None: that is not known yet.

        Raises:
            RoundOverError: it does not.
        """
        if self._world.rounds:
            self._world.rounds.check()
        self._current = step
        self._keep_buffers()

    def outlives(self, error: RuntimeError, session: Session) -> bool:
        """Whether the error came because the round is over, and this rank goes on."""
        rounds = self._world.rounds
        if isinstance(error, RoundLeftError):  # what it has is in a snapshot, too
            return True
        return self._within and rounds is not None and rounds.ended_by(error) and session.settle(SETTLE_SECONDS)

    def refuse(self, why: str) -> None:
        """It has turned out that this rank cannot outlive its round."""
        if self._possible:
            self._set(within=False)
            self._possible = False
            self._refuse(why)

    def rejoin(self, session: Session, current: Step | None = None) -> Brought:
        """Form the next round with the other ranks; returns what this one brings.

        Args:
            session: of the round that is over.
            current: the step that was cut short, if it was not given to ``step``.

        Raises:
            CannotOutliveError: something holds what belonged to the last round.
            RuntimeError: the group could not be formed.
        """
        brought, left = session.leave()
        self._left += left
        if (current := current or self._current) is not None and current.number > session.steps:
            self._left.append(current)  # if another rank has finished it, that counts
            self._restore_buffers()
        self._current = None
        if self.updating:
            brought, self.updating = Brought(), False
        self._release()
        self._rejoin()
        return brought

    def _rejoin(self) -> None:
        if (shards := self._shards) is None:
            self._world.rejoin()
            return

        def renew() -> None:
            shards.check(self._world.rank, self._world.size)
            shards.renew()

        shards.reset()
        try:
            self._world.rejoin(renew)
        except CannotRenewError as error:
            raise CannotOutliveError(f"{error}: this rank is started anew") from error

    def take_left(self) -> list[Step]:
        """The steps of former rounds that this rank has not reported."""
        left, self._left = self._left, []
        return left

    def _set(self, *, within: bool) -> None:
        self._within = within
        if within:
            self._before = [buffer.clone() for buffer in self._state.buffers()]
        if self._shards:
            self._shards.watch(on=within)
        if self._possible:
            self._world.heartbeat.survives(can=within)

    def _obstacle(self) -> str:
        """Why this rank could not outlive its round; empty if it can."""
        if self._state.sharded:
            try:
                self._shards = ReplicatedShards(self._state.modules, self._world.barrier_of)
            except CannotRenewError as error:
                return str(error)
        if self._why_not:
            return self._why_not
        if self._world.env.job.snapshots.memory_every_steps is not None:
            return "snapshots.memoryEverySteps is set"
        if _holds_ddp():
            return "the script has DDP modules of its own"
        return obstacle(groups=self._shards is not None)

    def _refuse(self, why: str) -> None:
        self.note = f"all ranks are restarted if one is lost, although policy.survivors is live: {why}"
        self._world.print(f"note: {self.note}")

    def _spoiled(self, why: str) -> None:
        """The state cannot be used."""
        self.updating = True
        self._world.warn(f"the state of this rank cannot be used: {why}")

    def _keep_buffers(self) -> None:
        if self._before:
            _copy(self._state.buffers(), self._before)

    def _restore_buffers(self) -> None:
        """Undo what the forward pass of a step that was not finished has done."""
        if self._before:
            _copy(self._before, self._state.buffers())

    @staticmethod
    def _release() -> None:
        """Make sure that DDP's reducer is gone: its hooks would wait for the ranks of the last round."""
        if _holds_ddp():
            raise CannotOutliveError("the script holds what belonged to the last round: this rank is started anew")


def _holds_ddp() -> bool:
    """Whether a DDP module is in use; one that is not may be a part of a circle, and live until it is collected."""
    if living():
        gc.collect()
    return bool(living())


@torch.no_grad()
def _copy(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
