"""Reports progress from rank 0: a bar in a terminal, else plain lines, and a file for the job's status."""

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
from kittrain.training.grace_period import GracePeriodCheck
from kittrain.training.step_sync import Step
from kittrain.world.distributed import World
from kittrain.world.order import Order

TICK_SECONDS: Final = 0.5  # between two updates of speed, bar and file
LINE_SECONDS: Final = 5.0  # between two plain lines
WINDOW: Final = 60  # updates that the speed is averaged over


class Reporter:
    """Context manager around the training loop. Ranks other than 0 report nothing.

    Args:
        world: its environment has the path of the progress file.
        order: of the data.
        epochs: to train.
    """

    def __init__(self, world: World, order: Order, *, epochs: int) -> None:
        self._main = world.is_main
        self._print = world.print
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
        self._grace = GracePeriodCheck(world)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._main:
            self._write()

    def begin(self, steps: int) -> None:
        """Training starts, or resumes, after this many steps."""
        self._resumed_from = self._bar.initial = self._bar.n = steps
        self._bar.refresh()

    def step(self, step: Step) -> None:
        """A step has ended."""
        first, self._step = self._step is None, step
        self._bar.update()
        self._speed.count(step.size)
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
        self._speed.tick(now)
        self._bar.set_postfix(loss=f"{step.loss:.4f}", refresh=False)
        self._write()
        if self._bar.disable and now >= self._last_line + LINE_SECONDS:
            self._last_line = now
            self._print(self._line(step))

    def snapshot(self, committed: Committed) -> None:
        """Set the last committed snapshot; called at every step."""
        if committed is not self._committed:
            self._committed = committed
            self._grace.snapshot(committed.seconds)

    def epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """An epoch has ended, with these metrics."""
        self._metrics = dict(metrics)
        loss = f" loss {self._step.loss:.4f}" if self._step else ""
        text = "".join(f" {name} {value:.4f}" for name, value in metrics.items())
        self._print(f"epoch {epoch + 1}/{self._epochs} done{loss}{text}")

    def _line(self, step: Step) -> str:
        within = (step.number - 1) % self._order.steps_per_epoch + 1
        epoch = (step.number - 1) // self._order.steps_per_epoch + 1
        return (
            f"epoch {epoch}/{self._epochs} step {within}/{self._order.steps_per_epoch} loss {step.loss:.4f} "
            f"{self._speed.rate:.0f} samples/s eta {format_duration(self._eta(step))}"
        )

    def _eta(self, step: Step) -> float:
        """Seconds to the end; infinite while the speed is unknown."""
        left = self._epochs * self._order.samples - (step.cursor.epoch * self._order.samples + step.cursor.position)
        return left / self._speed.rate if self._speed.rate else math.inf

    def _write(self) -> None:
        """Replace the progress file, which the agent reads. A failed write is repeated at the next update."""
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
    """Samples per second, averaged over the last updates; times are monotonic, in seconds."""

    def __init__(self, now: float) -> None:
        self._counted = 0
        self._ticks = deque([(now, 0)], maxlen=WINDOW)
        self.rate = 0.0

    def count(self, samples: int) -> None:
        """Add processed samples."""
        self._counted += samples

    def tick(self, now: float) -> None:
        """Update the rate."""
        since, before = self._ticks[0]
        self._ticks.append((now, self._counted))
        self.rate = (self._counted - before) / (now - since)


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds: ``0:00:42``; ``-`` if not finite."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _finite(number: float) -> float | None:
    """None for NaN and infinity, which JSON lacks."""
    return number if math.isfinite(number) else None
