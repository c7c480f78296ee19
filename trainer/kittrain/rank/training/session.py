"""What surrounds the steps of any training loop: restore, exchange, snapshots, drain, reports.

``Training.fit()`` and ``Run`` both train in a session.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from torch import Tensor

from kittrain.job.env import WORKER_DRAINED
from kittrain.outcome.completion import mark_finished
from kittrain.rank.snapshots.folder.archive import NoRoomError
from kittrain.rank.snapshots.folder.chain import Life
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.read.survivors import Brought
from kittrain.rank.snapshots.state.rank_state import RankState
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.training.loss_watch import LossWatch
from kittrain.rank.training.message_batch import MessageBatch
from kittrain.rank.training.report import Plan, ProgressReporter
from kittrain.rank.training.snapshot_schedule import SnapshotSchedule
from kittrain.rank.training.step_sync import Mean, Step, StepMessage, StepSync, StopRequest
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor, Order
from kittrain.system.heartbeat import Phase

OnStep = Callable[[Step], None]
NO_METRICS: Final[Mapping[str, float]] = {}
COPY_SHARE: Final = 0.4  # of the grace period that a drain may wait for copies on other nodes
ROOM: Final = 600.0  # seconds that the end of training may wait for room for what was trained
ROOM_TRIES: Final = 5.0  # seconds between two tries
ROOM_PAUSE: Final = 0.2
LAST_COPIES: Final = 60.0  # seconds that the end of training may wait for them
DEFAULT_GRACE: Final = 30  # seconds, if the period is not known


class Drained(SystemExit):
    """All ranks stopped at the same step because one was asked to; the exit code asks for a restart."""

    def __init__(self) -> None:
        super().__init__(WORKER_DRAINED)


class Session:
    """Context manager around the steps; entering it restores the newest saved state. Collective.

    After each step: ``send``, then ``save_or_drain``. After the last one: ``finish``.

    Args:
        world: all ranks.
        state: to save and restore.
        order: of the data.
        plan: of the run, for reports.
        snapshot_every: steps between snapshots; None is the environment's.
        on_step: see ``Training``.
        own: what each rank saves besides; None is its random number generators only.
        brought: what this rank brings from a round that it has outlived; None: its process is new.

    Attributes:
        cursor: of the data, after the last step.
        report: progress.
        entered: whether there is a state to train on.
        lives_on: whether this rank goes on in the next round if a round ends in agreement, unless it is asked to end.

    Raises:
        ValueError: there are no steps between snapshots.
    """

    def __init__(
        self,
        world: World,
        state: State,
        order: Order,
        plan: Plan,
        *,
        snapshot_every: int | None = None,
        on_step: OnStep | None = None,
        own: RankState | None = None,
        brought: Brought | None = None,
    ) -> None:
        every = world.env.job.snapshots.every_steps if snapshot_every is None else snapshot_every
        if every < 1:
            raise ValueError(f"a snapshot every {every} steps: it needs to be 1 or more")
        self._world = world
        self._rounds = world.rounds
        self._order = order
        self._schedule = SnapshotSchedule(world.env, every=every)
        memory_every = world.env.job.snapshots.memory_every_steps
        self._memory_schedule = SnapshotSchedule(world.env, every=memory_every) if memory_every else None
        self._on_step = on_step
        self._snapshots = SnapshotManager(world, state, order, own)
        self._sync = StepSync(world)
        # Whether a snapshot is written is then known long before the next one is due.
        self._messages = MessageBatch(world, self.message, most=min(every, memory_every or every) // 4)
        self._losses = LossWatch(world)
        self._request = StopRequest()
        self._stack = ExitStack()
        self._begin = self.cursor = Cursor()
        self._brought = brought
        self._agreed: Brought | None = None
        self.entered = self.lives_on = False
        self._plan = plan
        self.report = ProgressReporter(world, plan)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for one in (self._request, self.report, self._snapshots):
                stack.enter_context(one)
            self._world.heartbeat.beat(Phase.RESTORING)
            self._begin = self.cursor = self._restore()
            self._schedule.restart(self._snapshots.committed.step)
            self._stack = stack.pop_all()
        self.entered = True
        return self

    def _restore(self) -> Cursor:
        """The state of ranks that have outlived their round, or the newest saved one; returns its data cursor."""
        if self._rounds is not None:
            self._agreed = self._snapshots.outlive(self._brought, self._forget)
            if self._agreed is not None and self._agreed.cursor is not None:
                return self._agreed.cursor
        return self._snapshots.restore()

    def _forget(self) -> None:
        """From now on this rank has no state of its own, until it has all of another one's."""
        if self._brought is not None:
            self._brought = Brought()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def steps(self) -> int:
        """Optimizer steps so far, including those before a restart."""
        return self._order.step(self.cursor)

    @property
    def loop(self) -> Sequence[int]:
        """Where the loop is of ranks that have outlived their round, as they have brought it."""
        return self._agreed.loop if self._agreed else ()

    @property
    def asked(self) -> bool:
        """Whether they have done what follows their last step."""
        return self._agreed is None or self._agreed.asked

    @property
    def requested(self) -> Mapping[str, float] | None:
        """The metrics of a snapshot that the loop has requested of them, and that was not taken."""
        return self._agreed.requested if self._agreed else None

    @property
    def after_step(self) -> bool:
        """Whether the ranks that have outlived their round were all in what a script's loop does after a step."""
        return bool(self.loop) and not self.asked

    @property
    def outlived(self) -> bool:
        """Whether the state is that of ranks that have outlived their round."""
        return self._agreed is not None

    def leave(self) -> tuple[Brought, list[Step]]:
        """What this rank takes to its next round, since this one is over: its state's facts, and unreported steps."""
        if not self.entered:
            return self._brought or Brought(), []
        steps = self._sync.left()
        life = Life(
            generation=self._snapshots.generation,
            world_size=self._world.size,
            start=self._begin,
            stop=self.cursor,
        )
        earlier = self._agreed.rounds if self._agreed else ()
        losses = {step.number: step.loss for step in steps if math.isfinite(step.loss)}
        rounds = (*earlier, life) if life.start < life.stop else earlier
        return Brought(cursor=self.cursor, rounds=rounds, losses=losses, alike=self._snapshots.alike), steps

    def settle(self, timeout: float) -> bool:
        """Wait for what this rank publishes; returns whether that is done."""
        return self._snapshots.settle(timeout)

    def report_left(self, steps: Sequence[Step]) -> None:
        """Report the steps of a former round that this rank has not reported there, as far as they count."""
        losses = self._agreed.losses if self._agreed else {}
        counting = [step for step in steps if step.number <= self.steps]
        for step in counting:
            step.loss = losses.get(step.number, step.loss)
            step.has_loss = step.has_loss and math.isfinite(step.loss)
        self._report(counting)

    @property
    def stopping(self) -> bool:
        """Whether a rank was asked to stop, as all ranks know by now."""
        return self._sync.received.stop

    def message(self) -> StepMessage:
        """What this rank sends with its next step."""
        return StepMessage.of(
            stop=self._request.requested or (self._rounds is not None and self._rounds.asked),
            written=self._snapshots.written,
            due=self._schedule.time_due,
            copied=self._snapshots.memory_ready,
        )

    def average(self, loss: Tensor | float | None, samples: int = 0) -> Mean:
        """Average the messages of a step that ends, where nothing else of the loop's carries them. Collective.

        Args:
            loss: of this rank; None: not known.
            samples: of this rank in the step; 0: not known.
        """
        return self._messages.add(loss, samples)

    def begin(self, epoch: int | None = None, details: str = "") -> None:
        """Report where training starts.

        Args:
            epoch: that it resumes in, from 0 on; None: unknown.
            details: more words for the log.
        """
        world, steps = self._world, self.steps
        ranks = f"{world.size} ranks" if world.size > 1 else "1 rank"
        start = f"resuming after step {steps}" if steps else "training"
        if steps and epoch is not None:
            epochs = self._plan.epochs
            start += f", at the end of epoch {epochs}" if epoch == epochs else f", in epoch {epoch + 1}"
        if self.outlived:
            start += ", in the memory of the ranks that are left,"
        elif steps > self._snapshots.committed.step:
            start += ", from copies in memory,"
        self.report.snapshot(self._snapshots.committed)
        self.report.not_whole = self._snapshots.not_whole
        self.report.begin(steps, epoch)
        world.print(f"{start} with {ranks} on {world.device.type}{details}")

    def send(self, cursor: Cursor, mean: Mean, *, ids: list[int], size: int, epoch: int, has_loss: bool = True) -> None:
        """A step has ended; those before it are reported, once they are exchanged.

        Args:
            cursor: of the data, after it.
            mean: of the messages that the ranks send with it.
            ids: this rank's samples, if known.
            size: number of samples of all ranks, if known.
            epoch: it belongs to, from 0 on.
            has_loss: whether the messages have one.
        """
        self.cursor = cursor
        step = self.step(cursor, ids=ids, size=size, epoch=epoch, has_loss=has_loss)
        self._world.heartbeat.beat(Phase.SYNCING, step=step.number)
        self._report(self._sync.send(step, mean))

    def step(self, cursor: Cursor, *, ids: list[int], size: int, epoch: int, has_loss: bool = True) -> Step:
        """A step of this round, after which the cursor is that; the arguments are those of ``send``."""
        return Step(
            number=self._order.step(cursor),
            generation=self._snapshots.generation,
            cursor=cursor,
            ids=ids,
            size=size,
            epoch=epoch,
            has_loss=has_loss,
        )

    def flush(self) -> None:
        """Report the last steps."""
        self._report(self._sync.flush())

    def save_or_drain(self, metrics: Mapping[str, float] = NO_METRICS) -> None:
        """Take a snapshot, or begin one if it is due.

        Args:
            metrics: of the epoch that ends here.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken.
        """
        if self._sync.received.stop:
            self._drain(metrics)
        self._save(metrics)
        self._world.heartbeat.beat(Phase.DATA)

    def commit(self, metrics: Mapping[str, float] = NO_METRICS, *, changed: bool = False) -> None:
        """Take a snapshot, and wait for it.

        Args:
            metrics: of this state.
            changed: it may have changed since the last snapshot, even if no step has ended since.
        """
        self._world.heartbeat.beat(Phase.SAVING)
        self.flush()
        if self._world.env.snapshot_dir:
            self.report.saving(self.steps)
        self._snapshots.commit(self.cursor, metrics, not_finite=self._losses.problem, changed=changed)
        self._schedule.restart(self.steps)
        self.report.snapshot(self._snapshots.committed)

    def finish(
        self,
        metrics: Mapping[str, float] = NO_METRICS,
        *,
        changed: bool = False,
        stored: Callable[[], None] = lambda: None,
    ) -> None:
        """Training has ended: take the last snapshot, and write the model's file and a marker.

        While there is no room for them, the ranks keep what was trained, and try again.

        Args:
            metrics: of the last step.
            changed: the state may have changed since the last snapshot, even if no step has ended since.
            stored: called once that snapshot is taken: from then on a restart repeats no step.

        Raises:
            SnapshotError: the trained model cannot be written.
            Fenced: ranks of a newer generation have taken over.
            Drained: a rank was asked to stop while they waited for room.
        """
        until = time.monotonic() + ROOM
        while True:
            try:
                self._store(metrics, stored, changed=changed)
                break
            except NoRoomError as error:
                self._await_room(error, until)
        self.report.wait("")
        mark_finished()
        self._world.heartbeat.beat(Phase.FINISHING)

    def _store(self, metrics: Mapping[str, float], stored: Callable[[], None], *, changed: bool) -> None:
        """Write what training leaves."""
        if changed or self.outlived or self.cursor != self._begin:
            self.commit(metrics, changed=changed)
        stored()
        if not self._snapshots.wait_for_copies(LAST_COPIES):
            self._world.print("warning: not all copies of the last snapshot are on other nodes")
        self._snapshots.finish()

    def _await_room(self, error: NoRoomError, until: float) -> None:
        """Wait a little, and tell why; raise the error if it takes too long."""
        if self._any(time.monotonic() > until):
            raise error
        self.report.wait(f"training has ended, and its result is kept for up to {ROOM / 60:.0f} min: {error}")
        begin = time.monotonic()
        while not self._any(self._request.requested or time.monotonic() > begin + ROOM_TRIES):
            self._world.heartbeat.beat(Phase.SAVING)
            time.sleep(ROOM_PAUSE)
        if self._any(self._request.requested):
            self._drain(NO_METRICS)

    def _any(self, condition: bool) -> bool:  # noqa: FBT001  what a rank knows
        """Whether a condition holds on any rank. Collective."""
        return any(any(one) for one in self._world.all_gather([condition]))

    def _save(self, metrics: Mapping[str, float]) -> None:
        """Begin a snapshot, and a copy in memory, if one is due.

        A snapshot that is due while another is being written waits for it, unless it may become the best one: only
        the state at this step has the metric.
        """
        step, received = self.steps, self._sync.received
        if not self._snapshots.prepared:
            self._world.heartbeat.beat(Phase.SAVING)
            self._snapshots.prepare()
        self._snapshots.advance(written=received.written)
        due = self._schedule.is_due(step, time_due=received.due) and not self._snapshots.pending
        due = due or self._schedule.has_best_metric(metrics)
        copy = (
            received.copied and self._memory_schedule is not None and self._memory_schedule.is_due(step, time_due=False)
        )
        if due or copy:
            self._world.heartbeat.beat(Phase.SAVING)
            self.flush()
        if due:
            self.report.saving(step)
            self._snapshots.begin(self.cursor, metrics, not_finite=self._losses.problem)
            self._schedule.restart(step)
        if self._memory_schedule and copy:
            self._snapshots.copy_to_memory(self.cursor, metrics)
            self._memory_schedule.restart(step)
        self.report.snapshot(self._snapshots.committed)

    def _drain(self, metrics: Mapping[str, float]) -> None:
        self.commit(metrics)
        if not self._snapshots.wait_for_copies(COPY_SHARE * (self._world.env.grace_seconds or DEFAULT_GRACE)):
            self._world.print("warning: not all copies of the last snapshot are on other nodes: there was no time")
        last = self._snapshots.committed.step
        lost = self._world.env.snapshot_dir and last != self.steps
        without = f", without a snapshot of it: the last one is of step {last}" if lost else ""
        self._world.print(f"stopping at step {self.steps}, as requested{without}")
        self._world.barrier()  # then exit code 75 of any rank means that the snapshot is committed
        if self.lives_on and self._rounds is not None:
            self._world.heartbeat.survives(can=True, waits=True)
            self._rounds.leave(lambda: self._request.requested)
        raise Drained

    def _report(self, steps: list[Step]) -> None:
        for step in steps:
            self._losses.step(step)
            self.report.warning, self.report.not_finite_steps = self._losses.warning, self._losses.count
            self.report.step(step)
            if self._on_step:
                self._on_step(step)
