"""Reports progress from rank 0: a bar in a terminal, else plain lines, and a file for the job's status."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from kitjob import typed
from kitjob.report import RankProgress
from kittrain.rank.snapshots.folder.chain import Committed
from kittrain.rank.training.grace_period import GracePeriodCheck
from kittrain.rank.training.step_sync import Step
from kittrain.rank.world.distributed import World
from kittrain.system.progress_bar import progress_bar

TICK_SECONDS: Final = 0.5  # between two updates of speed, bar and file
LINE_SECONDS: Final = 5.0  # between two plain lines
WINDOW: Final = 60  # updates that the speed is averaged over


@dataclass
class Plan:
    """How long a run is, as far as is known.

    Attributes:
        epochs: in all, including those before a restart; None: it has none, or they are not known yet.
        steps_per_epoch: optimizer steps.
        total_steps: optimizer steps in all; None is the product of both.
        refresh: called before they are read, which is a few times a second at most; may change them.
    """

    epochs: int | None = None
    steps_per_epoch: int | None = None
    total_steps: int | None = None
    refresh: Callable[[], None] = lambda: None

    @property
    def total(self) -> int | None:
        """Optimizer steps in all, if known."""
        if self.total_steps is None and self.epochs is not None and self.steps_per_epoch is not None:
            return self.epochs * self.steps_per_epoch
        return self.total_steps

    def estimate(self, start: int, epoch: int, steps_per_epoch: int) -> None:
        """Estimate the total: an epoch began after ``start`` steps, and the epochs left have about as many each."""
        if self.epochs is not None:
            self.steps_per_epoch = steps_per_epoch
            self.total_steps = start + (self.epochs - epoch) * steps_per_epoch


class ProgressReporter:
    """Context manager around the training loop. Ranks other than 0 report nothing.

    Args:
        world: its environment has the path of the progress file.
        plan: of the run; may change.

    Attributes:
        warning: about the training itself, for the job's status; may be set at any time.
        note: a lesser one, which holds as long as there is no other.
        not_whole: why the ranks did not resume from the newest snapshot, if no node has some of its parts.
        not_finite_steps: steps whose loss was not finite; may be set at any time.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self._main = world.is_main
        self._print = world.print
        self._file = world.env.progress_file
        self._plan = plan
        self._bar = progress_bar(plan.total, shown=self._main and sys.stderr.isatty())
        self._last_tick = self._last_line = time.monotonic()
        self._samples = Speed(self._last_tick)
        self._steps = Speed(self._last_tick)
        self._step: Step | None = None
        self._resumed_from = 0
        self._resumed_at: float | None = None
        self._epoch: int | None = None  # that it resumes in, from 0 on
        self._metrics: dict[str, Any] = {}
        self._committed = Committed()
        self._writing: tuple[int, float] | None = None  # the step of a snapshot, and since when
        self._grace = GracePeriodCheck(world)
        self.warning = self.note = self.not_whole = self._snapshot_warning = self._waiting = ""
        self.not_finite_steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._main:
            self._write()

    def begin(self, steps: int, epoch: int | None = None) -> None:
        """Training starts, or resumes, after this many steps; in an epoch from 0 on, if that is known.

        Where it resumes is written at once: after the last step there may be no other.
        """
        self._resumed_from = self._bar.initial = self._bar.n = steps
        self._epoch = epoch
        self._bar.refresh()
        if self._main and steps:
            self._write()

    def step(self, step: Step) -> None:
        """A step has ended."""
        first, self._step = self._step is None, step
        if not self._bar.disable:
            self._bar.update()
        self._samples.count(step.size)
        self._steps.count(1)
        if not self._main:
            return
        if first:  # written at once: it shows that the ranks have recovered
            self._resumed_at = time.time()
            self._write()
        now = time.monotonic()
        self._grace.step(now)
        if now < self._last_tick + TICK_SECONDS:
            return
        self._last_tick = now
        self._plan.refresh()
        self._samples.tick(now)
        self._steps.tick(now)
        self._bar.total = self._plan.total
        if not self._bar.disable:
            self._bar.set_postfix(loss=f"{step.loss:.4f}", refresh=False)
        self._write()
        if self._bar.disable and now >= self._last_line + LINE_SECONDS:
            self._last_line = now
            self._print(self._line(step))

    def flush(self) -> None:
        """Write the last step, after which others may not come."""
        if self._main:
            self._write()

    def saving(self, step: int | None = None) -> None:
        """A snapshot of this step is begun, or of the last one: the store may take long, and training wait for it."""
        last = self._step.number if self._step else self._resumed_from
        self._writing = (last if step is None else step, time.time())
        if self._main:
            self._write()

    def wait(self, why: str) -> None:
        """Training has ended, and what it leaves cannot be stored yet: say why, once in the log; empty: it is."""
        if why and why != self._waiting:
            self._print(f"warning: {why}")
        if why != self._waiting:
            self._waiting = why
            self.flush()

    def snapshot(self, committed: Committed) -> None:
        """Set the last committed snapshot; called at every step."""
        if committed is not self._committed:
            self._committed = committed
            if committed.failed or (self._writing and committed.step >= self._writing[0]):
                self._writing = None
            if committed.failed:
                return
            if not (committed.not_finite and self._snapshot_warning):  # the first of several stays
                since = f"the snapshots are not finite since step {committed.step}: {committed.not_finite}"
                self._snapshot_warning = since if committed.not_finite else ""
            self._grace.snapshot(committed.seconds)

    def epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """An epoch has ended, with these metrics."""
        self._plan.refresh()
        self.metrics(metrics)
        loss = f" loss {self._step.loss:.4f}" if self._step else ""
        text = "".join(f" {name} {value:.4f}" for name, value in metrics.items())
        self._print(f"epoch {_of(epoch + 1, self._plan.epochs)} done{loss}{text}")

    def evaluation(self, steps: int, metrics: Mapping[str, float]) -> None:
        """An evaluation after so many steps had these results."""
        self.metrics(metrics)
        self._plan.refresh()
        self._print(f"step {_of(steps, self._plan.total)}" + "".join(f" {name} {v:.4f}" for name, v in metrics.items()))

    def metrics(self, metrics: Mapping[str, Any]) -> None:
        """Set metrics of the status: numbers, or tensors of one number, which are read when they are written."""
        self._metrics |= metrics

    def _line(self, step: Step) -> str:
        plan, parts = self._plan, []
        if plan.epochs is not None:
            parts.append(f"epoch {_of(step.epoch + 1, plan.epochs)}")
        if plan.epochs is not None and plan.steps_per_epoch and plan.total_steps is None:
            parts.append(f"step {_of((step.number - 1) % plan.steps_per_epoch + 1, plan.steps_per_epoch)}")
        else:
            parts.append(f"step {_of(step.number, plan.total)}")
        speed = f"{self._samples.rate:.0f} samples/s" if self._samples.rate else f"{self._steps.rate:.1f} steps/s"
        return " ".join([*parts, f"loss {step.loss:.4f} {speed} eta {format_duration(self._eta(step))}"])

    def _eta(self, step: Step) -> float:
        """Seconds to the end; infinite while the speed or the number of steps is unknown."""
        total, rate = self._plan.total, self._steps.rate
        return (total - step.number) / rate if total is not None and rate else math.inf

    def _write(self) -> None:
        """Replace the progress file, which the agent reads. A failed write is repeated at the next update."""
        self._plan.refresh()
        step, epochs = self._step, self._plan.epochs
        if self._file is None or (step is None and not self._resumed_from):
            return
        epoch = step.epoch if step else self._epoch
        facts = RankProgress(
            step=step.number if step else self._resumed_from,
            total_steps=self._plan.total,
            epoch=None if epochs is None or epoch is None else min(epoch + 1, epochs),
            epochs=epochs,
            loss=_finite(step.loss) if step else None,
            samples_per_second=round(self._samples.rate, 1) or None,
            eta_seconds=_finite(self._eta(step)) if step else None,
            snapshot_step=self._committed.step,
            snapshot_time=self._committed.time,
            snapshot_seconds=round(self._committed.seconds, 4),
            snapshot_stall_seconds=round(self._committed.stall, 4),
            writing_step=self._writing[0] if self._writing else None,
            writing_since=self._writing[1] if self._writing else None,
            resumed_from=self._resumed_from,
            resumed_at=self._resumed_at,
            metrics={name: _finite(float(value)) for name, value in self._metrics.items()},
            warning=self._waiting or self.warning or self._committed.failed or self._snapshot_warning or self.note,
            samples=self._samples.counted,
            not_finite_steps=self.not_finite_steps,
            snapshot_bytes=self._committed.size,
            not_whole=self.not_whole,
        )
        scratch = self._file.with_name(f".{self._file.name}")
        with contextlib.suppress(OSError):
            scratch.write_bytes(typed.dump(facts))
            scratch.replace(self._file)


class Speed:
    """Steps or samples per second, averaged over the last updates; times are monotonic, in seconds.

    Attributes:
        counted: all of them.
        rate: so many a second.
    """

    def __init__(self, now: float) -> None:
        self.counted = 0
        self._ticks = deque([(now, 0)], maxlen=WINDOW)
        self.rate = 0.0

    def count(self, number: int) -> None:
        """Add finished steps or samples."""
        self.counted += number

    def tick(self, now: float) -> None:
        """Update the rate."""
        since, before = self._ticks[0]
        self._ticks.append((now, self.counted))
        self.rate = (self.counted - before) / (now - since)


def _of(number: int, total: int | None) -> str:
    """``3/10``; ``3`` if the total is not known."""
    return f"{number}" if total is None else f"{number}/{total}"


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds: ``0:00:42``; ``-`` if not finite."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _finite(number: float) -> float | None:
    """None for NaN and infinity, which JSON lacks."""
    return number if math.isfinite(number) else None
