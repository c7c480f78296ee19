"""What rank 0 tells while training: a bar in a terminal, plain lines elsewhere, and a file for the job's status."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from tqdm import tqdm

from kittrain.snapshots.chain import Committed
from kittrain.training.grace import Grace
from kittrain.training.pulse import Step
from kittrain.world.distributed import World
from kittrain.world.order import Order

TICK: Final = 0.5  # seconds between two looks at the clock's work: speed, bar and file
LINE: Final = 5.0  # seconds between two plain lines
WINDOW: Final = 60  # ticks that the speed is measured over


class Reporter:
    """A context around the training loop. On ranks other than 0 it is silent.

    Args:
        world: who tells, and the file to tell in.
        order: the data's.
        epochs: to train.
    """

    def __init__(self, world: World, order: Order, *, epochs: int) -> None:
        self._main = world.is_main
        self._say = world.say
        self._file = world.env.progress_file
        self._order = order
        self._epochs = epochs
        self._total = epochs * order.steps_per_epoch
        self._bar = tqdm(total=self._total, unit="step", disable=not (self._main and sys.stderr.isatty()))
        self._last_tick = self._last_line = time.monotonic()
        self._speed = Speed(self._last_tick)
        self._step: Step | None = None
        self._resumed_from = 0
        self._resumed_at = 0.0
        self._metrics: dict[str, float] = {}
        self._committed = Committed()
        self._grace = Grace(world)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._main:
            self._write()

    def begin(self, steps: int) -> None:
        """Training goes on behind a number of steps."""
        self._resumed_from = self._bar.initial = self._bar.n = steps
        self._bar.refresh()

    def step(self, step: Step) -> None:
        """A step was taken."""
        first, self._step = self._step is None, step
        self._bar.update()
        self._speed.count(step.size)
        if not self._main:
            return
        if first:  # news: whoever waits for the ranks' recovery waits for this
            self._resumed_at = time.time()
            self._write()
        now = time.monotonic()
        self._grace.step(now)
        if now < self._last_tick + TICK:
            return
        self._last_tick = now
        self._speed.tick(now)
        self._bar.set_postfix(loss=f"{step.loss:.4f}", refresh=False)
        self._write()
        if self._bar.disable and now >= self._last_line + LINE:
            self._last_line = now
            self._say(self._line(step))

    def snapshot(self, committed: Committed) -> None:
        """The last committed snapshot; told again at every step."""
        if committed is not self._committed:
            self._committed = committed
            self._grace.snapshot(committed.seconds)

    def epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """An epoch is complete, and its metrics are known."""
        self._metrics = dict(metrics)
        loss = f" loss {self._step.loss:.4f}" if self._step else ""
        told = "".join(f" {name} {value:.4f}" for name, value in metrics.items())
        self._say(f"epoch {epoch + 1}/{self._epochs} done{loss}{told}")

    def _line(self, step: Step) -> str:
        within = (step.number - 1) % self._order.steps_per_epoch + 1
        epoch = (step.number - 1) // self._order.steps_per_epoch + 1
        return (
            f"epoch {epoch}/{self._epochs} step {within}/{self._order.steps_per_epoch} loss {step.loss:.4f} "
            f"{self._speed.rate:.0f} samples/s eta {clock(self._eta(step))}"
        )

    def _eta(self, step: Step) -> float:
        """Seconds to the end; infinite while the speed is not known."""
        left = self._epochs * self._order.samples - (step.cursor.epoch * self._order.samples + step.cursor.position)
        return left / self._speed.rate if self._speed.rate else math.inf

    def _write(self) -> None:
        """Replace the progress file. The agent reads it; what cannot be written now is written at the next tick."""
        if self._file is None or self._step is None:
            return
        facts: dict[str, Any] = {
            "step": self._step.number,
            "total_steps": self._total,
            "epoch": min(self._step.cursor.epoch + 1, self._epochs),
            "epochs": self._epochs,
            "loss": _finite(self._step.loss),
            "samples_per_second": round(self._speed.rate, 1),
            "eta_seconds": _finite(self._eta(self._step)),
            "snapshot_step": self._committed.step,
            "snapshot_seconds": round(self._committed.seconds, 4),
            "snapshot_stall_seconds": round(self._committed.stall, 4),
            "resumed_from": self._resumed_from,
            "resumed_at": self._resumed_at,
            "metrics": {name: _finite(value) for name, value in self._metrics.items()},
        }
        scratch = self._file.with_name(f".{self._file.name}")
        with contextlib.suppress(OSError):
            scratch.write_text(json.dumps(facts))
            scratch.replace(self._file)


class Speed:
    """Samples a second, over the last ticks of the clock; times are those of a steady clock in seconds."""

    def __init__(self, now: float) -> None:
        self._counted = 0
        self._ticks = deque([(now, 0)], maxlen=WINDOW)
        self.rate = 0.0

    def count(self, samples: int) -> None:
        """More samples are done."""
        self._counted += samples

    def tick(self, now: float) -> None:
        """Measure."""
        since, before = self._ticks[0]
        self._ticks.append((now, self._counted))
        self.rate = (self._counted - before) / (now - since)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: ``0:00:42``; ``-`` where they are not known."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _finite(number: float) -> float | None:
    """JSON has no NaN."""
    return number if math.isfinite(number) else None
